//! Tests of `upgrade` and `steps` in the attribute.

use idem::testing::FaultStore;
use idem::{Error, MemoryStore, StepError, idempotent};
use serde::{Deserialize, Serialize};

use crate::support::{Failure, Runs};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    currency: String,
}

impl Receipt {
    fn of_old(recorded: &[u8]) -> Option<Self> {
        Some(Self { number: serde_json::from_slice(recorded).ok()?, currency: "EUR".to_owned() })
    }
}

/// An older version of the function.
#[idempotent(key = "{id}", scope = "test.charge", store = store)]
async fn charged(store: &MemoryStore, id: u64) -> Result<u64, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", scope = "test.charge", upgrade = Receipt::of_old, store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<Receipt, Failure> {
    Ok(Receipt { number: id, currency: "USD".to_owned() })
}

#[idempotent(key = "{id}", scope = "test.charge", upgrade = |_| None, detach, store = store)]
async fn by_closure(store: MemoryStore, id: u64) -> Result<Receipt, Failure> {
    drop(store);
    Ok(Receipt { number: id, currency: "USD".to_owned() })
}

#[tokio::test]
async fn what_an_older_build_recorded_is_upgraded_at_each_replay() {
    let store = MemoryStore::new();
    charged(&store, 7).await.unwrap();
    for _ in 0..2 {
        let old = Receipt { number: 7, currency: "EUR".to_owned() };
        assert_eq!(charge(&store, 7).await.unwrap(), old);
    }
    assert_eq!(charged(&store, 7).await.unwrap(), 7, "the build before reads it still");
    assert_eq!(by_closure(store.clone(), 7).await.unwrap_err().kind(), "undecodable");
    for _ in 0..2 {
        assert_eq!(charge(&store, 8).await.unwrap().currency, "USD", "what is new is as it is");
    }
}

async fn step(runs: &Runs) -> Result<usize, Failure> {
    idem::step("count", || async { Ok::<_, Failure>(runs.run()) }).await
}

#[idempotent(key = "{id}", steps = "strict", fail_open, store = store)]
async fn strict(store: &FaultStore<MemoryStore>, id: u8, runs: &Runs) -> Result<usize, Failure> {
    step(runs).await
}

#[idempotent(key = "{id}", steps = "warn", fail_open, store = store)]
async fn warns(store: &FaultStore<MemoryStore>, id: u8, runs: &Runs) -> Result<usize, Failure> {
    step(runs).await
}

#[idempotent(key = "id", steps = "strict", missing_key = "run", store = store)]
async fn without_a_key(store: &MemoryStore, id: Option<u8>, runs: &Runs) -> Result<usize, Failure> {
    step(runs).await
}

#[idempotent(key = "id", steps = "strict", missing_key = "run", detach, store = store)]
async fn detached(store: MemoryStore, id: Option<u8>, runs: Runs) -> Result<usize, Failure> {
    drop(store);
    step(&runs).await
}

#[tokio::test]
async fn a_step_that_nothing_records_does_not_run_where_steps_are_strict() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    assert_eq!(strict(&store, 1, &runs).await.unwrap(), 1);
    store.down(true);
    let refused = strict(&store, 2, &runs).await.unwrap_err();
    assert!(
        matches!(refused, Failure::Idem(Error::Step { source: StepError::Unprotected, .. })),
        "{refused:?}"
    );
    assert_eq!(warns(&store, 2, &runs).await.unwrap(), 2);

    let store = MemoryStore::new();
    assert_eq!(without_a_key(&store, Some(1), &runs).await.unwrap(), 3);
    for refused in
        [without_a_key(&store, None, &runs).await, detached(store.clone(), None, runs.clone()).await]
    {
        let refused = refused.unwrap_err();
        assert_eq!(refused.kind(), "configuration");
        assert!(refused.to_string().contains("attribute_versions"), "the operation is named: {refused}");
    }
    assert_eq!(runs.count(), 3);
}
