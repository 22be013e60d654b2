//! Steps of a body that no longer holds its claim.

use std::cell::Cell;
use std::sync::Arc;

use idem::protocol::{RecordStep, RecordStepAnswer, RecordedStep, StoredResult};
use idem::{MemoryStore, OnCrash, Store};

use super::recorded;
use crate::support::{Failure, crashed_worker, operation, record_key};

/// Has another worker, with a step of its own, take over the claim of the running body.
async fn taken_over(store: &MemoryStore) {
    store.forget(&record_key("k")).await.unwrap();
    let (owner, grant) = crashed_worker(store, "k", OnCrash::Rerun).await;
    let step = RecordedStep::new("theirs".into(), None, StoredResult::Value("1".into()));
    let request = RecordStep::new(owner, grant.fence, 0, step);
    let answer = store.record_step(&record_key("k"), &request).await.unwrap();
    assert_eq!(answer, RecordStepAnswer::Recorded);
}

#[tokio::test(start_paused = true)]
async fn a_step_of_a_worker_that_was_taken_over_is_not_recorded_and_its_body_goes_no_further() {
    let (store, went_on) = (MemoryStore::new(), Cell::new(false));
    let call = operation().run(&store, "k", || async {
        let step = idem::step("mine", || async {
            taken_over(&store).await;
            Ok::<_, Failure>(7)
        });
        let given = step.await;
        went_on.set(true);
        given
    });
    assert_eq!(call.await.unwrap_err().kind(), "lease_lost");
    assert!(!went_on.get());
    assert_eq!(recorded(&store).await, ["theirs"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_body_that_holds_on_to_its_thread_is_told_that_its_lease_is_lost() {
    let store = MemoryStore::new();
    let told = Arc::new(std::sync::Mutex::new(None));
    let call = operation().run(&store, "k", || async {
        taken_over(&store).await;
        let runtime = tokio::runtime::Handle::current();
        let step = idem::step("mine", || async { Ok::<_, Failure>(7) });
        let given = tokio::task::block_in_place(|| runtime.block_on(step));
        *told.lock().unwrap() = Some(given.as_ref().unwrap_err().kind());
        given
    });
    call.await.unwrap_err();
    assert_eq!(*told.lock().unwrap(), Some("lease_lost"));
}
