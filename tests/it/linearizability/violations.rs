//! Stores and histories that are not linearizable, each of which must be found out.

use idem::protocol::{Answer, CompleteAnswer, OnCrash, Record, ReleaseAnswer, ReleaseCause, Request};
use idem::{MemoryStore, RecordKey, Store, StoreError};

use super::{Granted, History, Op, Ret, violation};

/// A store whose claim reads first and writes later.
#[derive(Clone)]
struct GetThenSet(MemoryStore);

impl Store for GetThenSet {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        if matches!(request, Request::Claim(_)) && self.0.get(key).await?.is_none() {
            tokio::task::yield_now().await;
            self.0.forget(key).await?;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_in_two_steps_is_found_out() {
    assert!(violation(GetThenSet(MemoryStore::new()), 400, 1).await.is_some());
}

const fn claim_by(owner: u32) -> Op {
    Op::Claim { owner, fingerprint: 0, on_crash: OnCrash::Rerun }
}

/// A store that takes a late copy of a claim for a new claim.
#[test]
fn a_released_key_that_its_own_owner_revives_is_found_out() {
    let history = History::default();
    let granted = Granted { owner: 1, attempt: 1 };
    for (op, ret) in [
        (claim_by(1), Ret::Granted { attempt: 1, recovered: false }),
        (Op::Release(granted, ReleaseCause::Failed), Ret::Other(Answer::Release(ReleaseAnswer::Released))),
        (claim_by(1), Ret::Granted { attempt: 2, recovered: false }),
    ] {
        let id = history.invoke(op);
        history.end(id, Ok(ret));
    }
    assert!(!history.is_linearizable());
}

/// A store that answers before it has written.
#[test]
fn a_lost_write_is_found_out() {
    let history = History::default();
    let granted = Granted { owner: 1, attempt: 1 };
    for (op, ret) in [
        (claim_by(1), Ret::Granted { attempt: 1, recovered: false }),
        (Op::Complete(granted, 7), Ret::Other(Answer::Complete(CompleteAnswer::Done))),
        (claim_by(2), Ret::Busy),
    ] {
        let id = history.invoke(op);
        history.end(id, Ok(ret));
    }
    assert!(!history.is_linearizable());
}
