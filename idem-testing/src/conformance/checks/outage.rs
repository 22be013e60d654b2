//! Checks of whole operations on a store that is down, is slow or hangs: every call ends in time, with a typed error or
//! its value, and no body runs twice.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::conformance::trial::{Broken, Checked, LONG, Trial, same, that};
use crate::{Fault, OperationKind};
use idem_core::Store;
use idem_core::StoreErrorKind;
use idem_core::protocol::State;
use idem_runtime::{Error, Operation};

/// How long one operation of the store may take.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long a call without an answer may take until it fails, on a slow machine.
const BOUND: Duration = Duration::from_secs(15);
/// The key of every call in these checks.
const KEY: &str = "order-42";

/// The errors of a body.
#[derive(Debug)]
enum Failure {
    Own(u8),
    Idem(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Idem(error)
    }
}

/// A body that counts how often it is started.
#[derive(Default)]
struct Body(AtomicU32);

impl Body {
    fn runs(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }

    async fn call(&self, t: &Trial, operation: &Operation) -> Result<u32, Error> {
        let body = || async { Ok::<_, Error>(self.0.fetch_add(1, Ordering::SeqCst) + 1) };
        Box::pin(operation.run(&t.store, KEY, body)).await
    }
}

fn operation(t: &Trial) -> Checked<Operation> {
    let scope = t.key(KEY)?.scope().as_str().to_owned();
    Ok(Operation::new(scope).store_timeout(PATIENCE).lease(LONG))
}

fn ran(what: &str, result: Result<u32, Error>, value: u32) -> Checked {
    same(what, result.map_err(|error| error.to_string()), Ok(value))
}

fn refused(result: Result<u32, Error>, wanted: StoreErrorKind) -> Checked {
    match result {
        Err(Error::Store { source, .. }) => same("the kind of the error", source.kind(), wanted),
        other => Err(Broken(format!("the call should be refused as the store failed, and is {other:?}"))),
    }
}

/// Runs a call, and fails if it does not end in time.
async fn bounded<T>(call: impl Future<Output = T>) -> Checked<T> {
    let started = Instant::now();
    let result = tokio::time::timeout(BOUND, call).await;
    let spent = started.elapsed();
    result.map_err(|_| Broken(format!("a call is not over after {spent:?}")))
}

pub(crate) async fn a_store_that_is_down_refuses_the_call_and_runs_nothing(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?, Body::default());
    t.store.faults.down(true);
    refused(bounded(body.call(t, &operation)).await?, StoreErrorKind::Unavailable)?;
    same("runs", body.runs(), 0)?;
    t.store.faults.down(false);
    ran("the call afterwards", body.call(t, &operation).await, 1)
}

pub(crate) async fn a_store_that_is_down_lets_an_open_operation_run(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?.fail_open(), Body::default());
    t.store.faults.down(true);
    ran("the call", bounded(body.call(t, &operation)).await?, 1)?;
    t.store.faults.down(false);
    same("record", t.get(&t.key(KEY)?).await?, None)?;
    ran("the call afterwards", body.call(t, &operation).await, 2)
}

pub(crate) async fn a_claim_that_hangs_is_given_up_in_time(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?, Body::default());
    t.store.faults.next(OperationKind::Claim, Fault::HangBefore);
    refused(bounded(body.call(t, &operation)).await?, StoreErrorKind::OutcomeUnknown)?;
    same("runs", body.runs(), 0)?;
    ran("the call afterwards", body.call(t, &operation).await, 1)
}

pub(crate) async fn a_grant_that_never_arrives_frees_the_key_with_its_lease(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?.lease(t.short()), Body::default());
    t.store.faults.next(OperationKind::Claim, Fault::HangAfter);
    refused(bounded(body.call(t, &operation)).await?, StoreErrorKind::OutcomeUnknown)?;
    same("runs", body.runs(), 0)?;
    t.pass(t.short()).await;
    ran("the call afterwards", bounded(body.call(t, &operation)).await?, 1)
}

pub(crate) async fn a_slow_store_is_waited_for(t: &Trial) -> Checked {
    for fault in [Fault::DelayBefore(PATIENCE / 4), Fault::DelayAfter(PATIENCE / 4)] {
        let body = Body::default();
        let operation = operation(t)?.store_timeout(BOUND);
        for kind in OperationKind::ALL {
            t.store.faults.always(kind, fault);
        }
        ran("the call", bounded(body.call(t, &operation)).await?, 1)?;
        ran("its duplicate", bounded(body.call(t, &operation)).await?, 1)?;
        for kind in OperationKind::ALL {
            t.store.faults.always(kind, None);
        }
        t.forget(&t.key(KEY)?).await?;
    }
    Ok(())
}

pub(crate) async fn a_call_whose_grant_was_lost_runs_its_body_once(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?.store_timeout(BOUND), Body::default());
    t.store.faults.next_times(OperationKind::Claim, 2, Fault::FailAfter);
    ran("the call", bounded(body.call(t, &operation)).await?, 1)?;
    ran("its duplicate", body.call(t, &operation).await, 1)?;
    same("attempt", t.record(&t.key(KEY)?).await?.attempt, 1)
}

pub(crate) async fn a_value_is_recorded_though_the_store_fails_at_first(t: &Trial) -> Checked {
    for fault in [Fault::FailBefore, Fault::FailAfter] {
        let (operation, body) = (operation(t)?, Body::default());
        t.store.faults.next_times(OperationKind::Complete, 2, fault);
        ran("the call", bounded(body.call(t, &operation)).await?, 1)?;
        ran("its duplicate", body.call(t, &operation).await, 1)?;
        t.forget(&t.key(KEY)?).await?;
    }
    Ok(())
}

pub(crate) async fn a_value_is_not_lost_with_a_store_that_goes_away(t: &Trial) -> Checked {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::HangBefore, Fault::HangAfter] {
        let (operation, body) = (operation(t)?.lease(PATIENCE), Body::default());
        t.store.faults.always(OperationKind::Complete, fault);
        t.store.faults.always(OperationKind::Renew, Fault::FailBefore);
        let value = bounded(body.call(t, &operation)).await?;
        ran(&format!("the call ({fault:?})"), value, 1)?;
        for kind in [OperationKind::Complete, OperationKind::Renew] {
            t.store.faults.always(kind, None);
        }
        t.forget(&t.key(KEY)?).await?;
    }
    Ok(())
}

/// Makes a call whose body fails, and whose release has this fault.
async fn failing(t: &Trial, operation: &Operation, fault: Fault) -> Checked {
    t.store.faults.always(OperationKind::Release, fault);
    let body = || async { Err::<u32, _>(Failure::Own(7)) };
    let result = bounded(Box::pin(operation.run(&t.store, KEY, body))).await?;
    match result {
        Err(Failure::Own(7)) => Ok(()),
        Err(Failure::Idem(error)) => Err(Broken(format!("the body's error is hidden by: {error}"))),
        other => Err(Broken(format!("the body's error became {other:?}"))),
    }
}

pub(crate) async fn a_release_that_fails_does_not_hide_the_bodys_error(t: &Trial) -> Checked {
    for fault in [Fault::FailBefore, Fault::FailAfter, Fault::HangBefore, Fault::HangAfter] {
        failing(t, &operation(t)?.lease(t.short()), fault).await?;
        t.store.faults.always(OperationKind::Release, None);
        t.forget(&t.key(KEY)?).await?;
    }
    Ok(())
}

pub(crate) async fn a_release_that_failed_is_made_up_for(t: &Trial) -> Checked {
    let (operation, body) = (operation(t)?, Body::default());
    failing(t, &operation, Fault::FailBefore).await?;
    t.store.faults.always(OperationKind::Release, None);
    let key = t.key(KEY)?;
    for _ in 0..200 {
        if t.record(&key).await?.state == State::Released {
            break;
        }
        t.pass(t.short()).await;
    }
    ran("the call afterwards", body.call(t, &operation).await, 1)?;
    same("attempt", t.record(&key).await?.attempt, 2)
}

pub(crate) async fn renewals_that_fail_for_a_while_do_not_end_the_body(t: &Trial) -> Checked {
    let lease = Duration::from_secs(2);
    let operation = operation(t)?.lease(lease);
    t.store.faults.next(OperationKind::Renew, Fault::FailBefore);
    t.store.faults.next(OperationKind::Renew, Fault::FailAfter);
    let body = || async {
        tokio::time::sleep(lease + lease / 4).await;
        Ok::<_, Error>(1)
    };
    ran("the call", bounded(Box::pin(operation.run(&t.store, KEY, body))).await?, 1)?;
    let record = t.record(&t.key(KEY)?).await?;
    same("state", record.state, State::Completed)?;
    same("attempt", record.attempt, 1)
}

pub(crate) async fn a_value_over_the_stores_limit_is_given_to_its_caller_and_not_run_again(
    t: &Trial,
) -> Checked {
    let Some(limit) = t.store.max_result_bytes().filter(|limit| *limit < 1 << 26) else { return Ok(()) };
    let operation = operation(t)?.store_timeout(BOUND);
    let runs = AtomicU32::new(0);
    let body = || async {
        runs.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Error>("x".repeat(limit))
    };
    let value = bounded(Box::pin(operation.run(&t.store, KEY, body))).await?;
    same("the length of the value", value.map(|value| value.len()).map_err(|error| error.kind()), Ok(limit))?;
    let again = bounded(Box::pin(operation.run(&t.store, KEY, body))).await?;
    that(
        matches!(again, Err(Error::ResultNotStored { .. })),
        "a duplicate should be told that the result is not stored",
    )?;
    same("runs", runs.load(Ordering::SeqCst), 1)
}

/// Waits until a condition holds.
async fn until(condition: impl Fn() -> bool) {
    while !condition() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) async fn a_duplicate_that_waits_outlasts_an_outage(t: &Trial) -> Checked {
    let operation = operation(t)?.wait(BOUND).store_timeout(BOUND);
    let (body, faults) = (Body::default(), &t.store.faults);
    let first = Box::pin(operation.run(&t.store, KEY, || async {
        // The record has been read for the caller that waits, and is read again.
        until(|| faults.applied(OperationKind::Get) >= 1).await;
        faults.next_times(OperationKind::Get, 3, Fault::FailBefore);
        until(|| faults.faults(OperationKind::Get) >= 3).await;
        Ok::<_, Error>(7)
    }));
    let second = async {
        until(|| faults.applied(OperationKind::Claim) >= 1).await;
        body.call(t, &operation).await
    };
    let (first, second) = bounded(futures_util::future::join(first, second)).await?;
    ran("the first call", first, 7)?;
    ran("the duplicate", second, 7)?;
    same("runs of the duplicate's body", body.runs(), 0)
}
