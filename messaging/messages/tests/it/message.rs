//! How a message is settled after its call. A unit test of `idem-messages` covers each refused call.

use std::time::Duration;

use idem::message::{Disposition, Reason, settle};
use idem::protocol::{Claim, Owner};
use idem::{KeyBuilder, MemoryStore, OnCrash, Operation, RecordKey, Scope, Store};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::sleep;

use crate::message_support::Failure;

const LEASE: Duration = Duration::from_secs(30);

fn operation() -> Operation {
    Operation::new("test.message").lease(LEASE)
}

fn retry(after: Disposition) -> Duration {
    match after {
        Disposition::Retry { after, .. } => after,
        other => panic!("not retried: {other:?}"),
    }
}

/// Claims the key and does no more, as if the worker had crashed after the claim.
async fn crashed(store: &impl Store, on_crash: OnCrash) {
    let key = KeyBuilder::new().part("a").finish().unwrap();
    let key = RecordKey::new(Scope::new("test.message").unwrap(), key);
    let (owner, ttl) = (Owner::random(), LEASE * 10);
    let claim = Claim::new(owner, LEASE, ttl).with_on_crash(on_crash);
    store.claim(&key, &claim).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_retried_later_after_each_attempt_and_one_whose_value_is_not_kept_too() {
    let store = MemoryStore::new();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        let call = operation().run(&store, "a", async || Err::<u8, _>(Failure::Transient));
        pauses.push(retry(settle(call).await.disposition).as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    let due = operation().retry_after(Duration::from_secs(100));
    let call = due.run(&store, "b", async || Err::<u8, _>(Failure::Transient));
    assert_eq!(retry(settle(call).await.disposition).as_secs(), 100);
    let not_kept = operation().record_if(|_: &u8| false);
    let settled = settle(not_kept.run(&store, "c", async || Ok::<u8, Failure>(1))).await;
    assert_eq!((settled.value.unwrap(), retry(settled.disposition).as_secs()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_step_was_refused_is_rejected_and_one_whose_step_was_not_recorded_is_retried() {
    let store = FaultStore::new(MemoryStore::new());
    let step = |amount: u8| idem::Step::new("charge").fingerprint(&amount);
    let failing = async |amount: u8| {
        step(amount).run(async || Ok::<u8, Failure>(1)).await?;
        Err::<u8, _>(Failure::Transient)
    };
    retry(settle(operation().run(&store, "a", || failing(1))).await.disposition);
    let refused = settle(operation().run(&store, "a", || failing(2))).await;
    assert_eq!(refused.disposition, Disposition::reject(Reason::Step));
    // If a body goes on after a refused step, and later fails for another reason, the message is not
    // rejected.
    let going_on = settle(operation().run(&store, "a", async || {
        let _ = step(2).run(async || Ok::<u8, Failure>(1)).await;
        failing(1).await
    }));
    retry(going_on.await.disposition);
    store.always(OperationKind::RecordStep, Some(Fault::FailBefore));
    let unrecorded = async || idem::step("ship", async || Ok::<u8, Failure>(1)).await;
    retry(settle(operation().run(&store, "a", unrecorded)).await.disposition);
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_found_out_is_rejected_for_a_person_unless_the_next_call_asks_again() {
    for (on_crash, person) in [(OnCrash::Rerun, true), (OnCrash::InDoubt, false)] {
        let store = MemoryStore::new();
        crashed(&store, on_crash).await;
        sleep(LEASE).await;
        let operation = operation().on_crash(on_crash).recover(async |_| Err(Failure::Transient));
        let disposition = settle(operation.run(&store, "a", async || Ok::<u8, _>(1))).await.disposition;
        if person {
            assert_eq!(disposition, Disposition::reject(Reason::InDoubt));
        } else {
            retry(disposition);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_idempotent_call_is_acknowledged_only_where_it_succeeds() {
    let settled = settle(async { Ok::<_, Failure>(1) }).await;
    assert_eq!(settled.disposition, Disposition::Acknowledge);
    let settled = settle(async { Err::<u8, _>(Failure::Transient) }).await;
    assert_eq!(retry(settled.disposition), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_before_recover_holds_the_message() {
    let store = FaultStore::new(MemoryStore::new());
    crashed(&store, OnCrash::Rerun).await;
    sleep(LEASE * 2).await;
    store.always(OperationKind::Get, Fault::FailBefore);
    let operation = operation().recover(|_| async { Ok(None) });
    let call = operation.run(&store, "a", || async { Ok::<u8, Failure>(1) });
    let settled = settle(call).await;
    assert_eq!(retry(settled.disposition), Duration::from_secs(1));
}
