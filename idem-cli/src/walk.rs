//! Walking through the whole store, page by page.

use idem_core::listing::{List, MAX_LOOKED_AT, Page};
use idem_core::protocol::{State, Timestamp};
use idem_core::{Scope, Store as _, StoreError};
use idem_runtime::DynStore;

/// A walk under way.
pub(crate) struct Walk<'s> {
    store: &'s DynStore,
    next: Option<List>,
}

impl<'s> Walk<'s> {
    pub(crate) fn new(store: &'s DynStore, states: Vec<State>, scope: Option<Scope>) -> Self {
        Self {
            store,
            next: Some(
                List::default()
                    .with_states(states)
                    .with_scope(scope)
                    .with_after(None)
                    .with_limit(MAX_LOOKED_AT),
            ),
        }
    }

    /// The next page, or `None` at the end.
    pub(crate) async fn page(&mut self) -> Result<Option<Page>, StoreError> {
        let Some(request) = self.next.take() else { return Ok(None) };
        let mut page = self.store.list(&request).await?;
        self.next = page.next.take().map(|after| request.with_after(Some(after)));
        Ok(Some(page))
    }
}

/// The store's clock.
pub(crate) async fn now(store: &DynStore) -> Result<Timestamp, StoreError> {
    store.list(&List::default().with_limit(1)).await.map(|page| page.now)
}
