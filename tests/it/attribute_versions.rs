//! Tests of results that an older build recorded, and of steps in calls that run unprotected.

use idem::testing::FaultStore;
use idem::{MemoryStore, idempotent};
use serde::{Deserialize, Serialize};

use crate::support::{Failure, Runs};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Recorded")]
struct Receipt {
    number: u64,
    currency: String,
}

/// The forms in which receipts were recorded.
#[derive(Deserialize)]
#[serde(untagged)]
enum Recorded {
    Number(u64),
    Receipt { number: u64, currency: String },
}

impl From<Recorded> for Receipt {
    fn from(recorded: Recorded) -> Self {
        match recorded {
            Recorded::Number(number) => Self { number, currency: "EUR".to_owned() },
            Recorded::Receipt { number, currency } => Self { number, currency },
        }
    }
}

/// An older version of the function.
#[idempotent(key = "{id}", scope = "test.charge", store = store)]
async fn charged(store: &MemoryStore, id: u64) -> Result<u64, Failure> {
    Ok(id)
}

#[idempotent(key = "{id}", scope = "test.charge", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<Receipt, Failure> {
    Ok(Receipt { number: id, currency: "USD".to_owned() })
}

#[tokio::test]
async fn serde_reads_what_an_older_build_recorded_at_each_replay() {
    let store = MemoryStore::new();
    charged(&store, 7).await.unwrap();
    for _ in 0..2 {
        let old = Receipt { number: 7, currency: "EUR".to_owned() };
        assert_eq!(charge(&store, 7).await.unwrap(), old);
    }
    assert_eq!(charged(&store, 7).await.unwrap(), 7, "the build before reads it still");
    for _ in 0..2 {
        assert_eq!(charge(&store, 8).await.unwrap().currency, "USD", "what is new is as it is");
    }
}

async fn step(runs: &Runs) -> Result<usize, Failure> {
    idem::step("count", || async { Ok::<_, Failure>(runs.run()) }).await
}

#[idempotent(key = "{id}", fail_open, store = store)]
async fn fails_open(store: &FaultStore<MemoryStore>, id: u8, runs: &Runs) -> Result<usize, Failure> {
    step(runs).await
}

#[idempotent(key = "id", missing_key = "run", store = store)]
async fn without_a_key(store: &MemoryStore, id: Option<u8>, runs: &Runs) -> Result<usize, Failure> {
    step(runs).await
}

#[idempotent(key = "id", missing_key = "run", detach, store = store)]
async fn detached(store: MemoryStore, id: Option<u8>, runs: Runs) -> Result<usize, Failure> {
    drop(store);
    step(&runs).await
}

#[tokio::test]
async fn where_the_policy_lets_a_call_run_unprotected_its_steps_run_each_time() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    store.down(true);
    assert_eq!(fails_open(&store, 1, &runs).await.unwrap(), 1);
    let store = MemoryStore::new();
    for expected in [2, 4] {
        assert_eq!(without_a_key(&store, None, &runs).await.unwrap(), expected);
        assert_eq!(detached(store.clone(), None, runs.clone()).await.unwrap(), expected + 1);
    }
}

#[idempotent(key = "id", missing_key = "run", store = store)]
async fn spawns(store: &MemoryStore, id: Option<u8>, runs: &Runs) -> Result<usize, Failure> {
    let runs = runs.clone();
    tokio::spawn(async move { step(&runs).await }).await.unwrap()
}

#[tokio::test]
async fn a_task_spawned_by_a_body_is_outside_of_the_call_with_and_without_a_key() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    for id in [Some(1), None] {
        assert_eq!(spawns(&store, id, &runs).await.unwrap_err().kind(), "configuration");
    }
    assert_eq!(runs.count(), 0);
}
