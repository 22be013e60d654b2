//! Tests of a store that has only what the contract demands: no steps, and no listing.

use idem_core::protocol::{Answer, Record, Request};
use idem_core::{RecordKey, Store, StoreError};
use idem_testing::conformance::{Check, Profile, Subject, all};

use crate::support::rules::Rules;
use crate::support::rules_store::RulesStore;

/// A store in one process, without steps and without listing.
#[derive(Clone)]
struct TheirStore(RulesStore);

impl Store for TheirStore {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        if matches!(request, Request::RecordStep(_)) {
            return Err(StoreError::configuration("it does not record steps"));
        }
        self.0.apply(key, request).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.0.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(limit).await
    }
}

/// Whether a check is about what this store leaves out.
fn is_left_out(check: &Check) -> bool {
    matches!(check.theme(), "steps" | "histories" | "listing") || check.name().contains("step")
}

#[test]
fn a_store_without_steps_and_listing_passes_all_other_checks() {
    let subject =
        || async { Subject::new(TheirStore(RulesStore::new(Rules::SHIPPED)), Profile::tokio_clock()) };
    let broken: Vec<_> = all().iter().filter(|check| check.run(subject).is_err()).collect();
    let others: Vec<_> =
        broken.iter().filter(|check| !is_left_out(check)).map(|check| check.name()).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(!broken.is_empty(), "it was not asked for steps");
}
