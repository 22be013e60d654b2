//! The macro that implements `Store` for a type by calling the methods of one of its fields.

/// Implements [`Store`](idem_core::Store) for the type `$store` by calling the methods of its field `$field`:
/// an `Arc` of a `CasStore` or a `SharedStore`.
#[macro_export]
macro_rules! store_by {
    ($store:ty, $field:tt) => {
        const _: () = {
            use ::idem_core::inspection::Inspection;
            use ::idem_core::listing::{List, Page};
            use ::idem_core::protocol::{Answer, Record, Request};
            use ::idem_core::{RecordKey, Store, StoreError, Waiters};

            impl Store for $store {
                fn apply(
                    &self,
                    key: &RecordKey,
                    request: Request,
                ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
                    self.$field.apply(key, request)
                }

                async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
                    self.$field.forget(key).await
                }

                async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
                    self.$field.get(key).await
                }

                async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
                    self.$field.purge(limit).await
                }

                async fn list(&self, request: &List) -> Result<Page, StoreError> {
                    self.$field.list(request).await
                }

                async fn inspect(&self) -> Result<Inspection, StoreError> {
                    self.$field.inspect().await
                }

                fn max_result_bytes(&self) -> Option<usize> {
                    self.$field.max_result_bytes()
                }

                fn waiters(&self) -> &Waiters {
                    self.$field.waiters()
                }
            }
        };
    };
}
