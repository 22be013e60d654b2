//! What is to be done with a message, by how the call for it ended.

use std::time::Duration;

use idem::message::{Disposition, Reason, settle};
use idem::protocol::{Claim, Owner};
use idem::{Error, KeyBuilder, MemoryStore, OnCrash, Operation, RecordKey, Scope, Store};
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

fn reason(disposition: Disposition) -> Reason {
    match disposition {
        Disposition::Reject { reason, .. } => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

async fn call(store: &impl Store, operation: &Operation, body: Result<u8, Failure>) -> Disposition {
    settle(operation.run(store, "a", async || body)).await.disposition
}

/// A worker that claims the key and is never heard of again.
async fn crashed(store: &impl Store, on_crash: OnCrash) {
    let key = KeyBuilder::new().part("a").finish().unwrap();
    let key = RecordKey::new(Scope::new("test.message").unwrap(), key);
    let (owner, ttl) = (Owner::random(), LEASE * 10);
    let claim = Claim::new(owner, LEASE, ttl).with_on_crash(on_crash);
    store.claim(&key, &claim).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_elsewhere_is_retried_when_the_lease_is_over() {
    let store = MemoryStore::new();
    crashed(&store, OnCrash::Rerun).await;
    sleep(LEASE / 3).await;
    let after = retry(call(&store, &operation(), Ok(1)).await);
    assert_eq!(after, LEASE - LEASE / 3);
    sleep(after).await;
    assert_eq!(call(&store, &operation(), Ok(1)).await, Disposition::Acknowledge);
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_is_retried_later_after_each_attempt() {
    let store = MemoryStore::new();
    let mut pauses = Vec::new();
    for _ in 0..12 {
        pauses.push(retry(call(&store, &operation(), Err(Failure::Transient)).await).as_secs());
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
}

#[tokio::test(start_paused = true)]
async fn what_another_delivery_would_not_change_is_rejected() {
    let store = MemoryStore::new();
    let print = |byte: u8| operation().fingerprint(&byte);
    call(&store, &print(1), Ok(1)).await;
    assert_eq!(reason(call(&store, &print(2), Ok(1)).await), Reason::Mismatch);
    let text = operation().run(&store, "a", async || Ok::<_, Failure>(String::new()));
    assert_eq!(reason(settle(text).await.disposition), Reason::Undecodable);

    let store = MemoryStore::new();
    let once = operation().max_attempts(1);
    call(&store, &once, Err(Failure::Transient)).await;
    for _ in 0..2 {
        assert_eq!(reason(call(&store, &once, Ok(1)).await), Reason::Exhausted);
    }

    let store = MemoryStore::new();
    crashed(&store, OnCrash::InDoubt).await;
    sleep(LEASE).await;
    assert_eq!(reason(call(&store, &operation(), Ok(1)).await), Reason::InDoubt);

    let empty = operation().run(&store, "", async || Ok::<u8, Failure>(1));
    assert_eq!(reason(settle(empty).await.disposition), Reason::InvalidKey);
    let long = operation().run(&store, "x".repeat(2_000), async || Ok::<u8, Failure>(1));
    assert_eq!(reason(settle(long).await.disposition), Reason::InvalidKey);
}

#[tokio::test(start_paused = true)]
async fn a_result_that_is_not_stored_is_acknowledged_as_its_body_has_run() {
    let store = MemoryStore::with_max_result_bytes(1);
    let small = operation();
    let call = || settle(small.run(&store, "a", async || Ok::<_, Failure>("long".to_owned())));
    assert_eq!(call().await.disposition, Disposition::Acknowledge);
    let again = call().await;
    assert!(matches!(again.value, Err(Failure::Idem(Error::ResultNotStored { .. }))));
    assert_eq!(again.disposition, Disposition::Acknowledge);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_and_a_wrong_setting_keep_the_message() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Some(Fault::FailBefore));
    retry(call(&store, &operation(), Ok(1)).await);
    store.always(OperationKind::Claim, None);
    retry(call(&store, &operation().ttl(Duration::ZERO), Ok(1)).await);
    assert_eq!(call(&store, &operation(), Ok(1)).await, Disposition::Acknowledge);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_is_retried() {
    let store = MemoryStore::new();
    let lost = operation().run(&store, "a", async || {
        // An operator takes the key away, and somebody else has it.
        let key = idem::context().unwrap().key().clone();
        let key = RecordKey::new(Scope::new("test.message").unwrap(), key);
        store.forget(&key).await.unwrap();
        crashed(&store, OnCrash::Rerun).await;
        sleep(LEASE).await;
        Ok::<u8, Failure>(1)
    });
    let settled = settle(lost).await;
    assert!(matches!(settled.value, Err(Failure::Idem(Error::LeaseLost { .. }))), "{:?}", settled.value);
    retry(settled.disposition);
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_step_was_refused_is_rejected_and_one_whose_step_was_not_recorded_is_retried() {
    let store = FaultStore::new(MemoryStore::new());
    let step = |amount: u8| idem::Step::new("charge").fingerprint(&amount);
    let failing = async |amount: u8| {
        let value: u8 = step(amount).run(async || Ok::<_, Failure>(1)).await?;
        let _ = value;
        Err::<u8, _>(Failure::Transient)
    };
    retry(settle(operation().run(&store, "a", || failing(1))).await.disposition);
    let refused = settle(operation().run(&store, "a", || failing(2))).await;
    assert_eq!(reason(refused.disposition), Reason::Step);
    // A body that goes on after it, and fails otherwise, is not refused for it.
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
            assert_eq!(reason(disposition), Reason::InDoubt);
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
