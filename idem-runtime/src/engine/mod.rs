//! What one call does: claim, run the body, keep the lease, record the result; or wait, or replay.
//!
//! Owns everything that happens between a caller and a store. It knows the protocol's answers but not its rules. It
//! knows results as bytes but not how a store keeps them.
//!
//! | file | what it does |
//! |---|---|
//! | `call`, `operation`, `retry_after`, `site` | what is checked before the store is asked |
//! | `claim`, `waiters` | claiming the key, and waiting for the call in flight |
//! | `attempt`, `claimed`, `late`, `late_recording`, `patience`, `background` | one granted claim, to its end: recorded, released or abandoned, also after its caller has gone |
//! //! | `lease`, `renewal_in_task`, `renewal_thread` | the lease, which the caller's task renews, and one thread if that task is blocked |
//! | `process` | what is kept for all calls of a process |
//! | `retry` | sending a request to the store again, until a deadline |
//! | `codec`, `rules`, `returns` | results to bytes and back, and which are kept |
//! | `context` | what a body learns about its call, and a caller about the call it made |
//! | `steps`, `recording_steps` | recovery points and `recover` |
//! | `transaction` | calls that commit with the caller's transaction |
//! | `unprotected` | bodies that run without a claim |
//! | `two_phase` | calls whose body is not one future: the public `begin` |
//! | `results` | a result to its record, and back to a caller |
//! | `report` | events and metrics |
//!
//! Only this file and a few lines of `steps` and `operation/run` are generic over the body. Keep them short, because they
//! are compiled for each body.

mod attempt;
mod background;
mod call;
mod claim;
mod claimed;
mod codec;
mod context;
mod late;
mod late_recording;
mod lease;
mod operation;
mod patience;
mod process;
mod recording_steps;
mod renewal_in_task;
mod renewal_thread;
mod report;
mod results;
mod retry;
mod retry_after;
mod returns;
mod rules;
mod site;
mod steps;
mod transaction;
mod two_phase;
mod unprotected;
mod waiters;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};
use tracing::Instrument;

use crate::error::Error;
use idem_core::Store;

use attempt::Recorded;
pub(crate) use background::{Pending, Work};
use claim::Entry;
use renewal_in_task::RenewalInTask;
use results::{decode, is_finished};

pub use background::{Drained, drain};
pub(crate) use call::{Call, Prepared};
pub(crate) use codec::{Codec, Encoded};
use context::unguarded_frame;
pub use context::{
    BackgroundWork, CallEnd, CallEvent, CallObserver, Context, Observed, Outcome, context, in_another_task,
    observe, observed_by, with_deadline,
};
pub(crate) use context::{Current, Observation};
pub use late_recording::{LateRecording, Unrecorded};
pub use operation::Operation;
pub use process::Process;
pub use retry_after::RetryAfter;
pub(crate) use returns::Failure;
pub use returns::Recordable;
pub use rules::{ResultRules, RulesFor, WithRecover};
pub use site::Site;
#[cfg(feature = "catalogue")]
pub(crate) use site::scope_of;
pub use steps::{MAX_STEP_NAME_BYTES, Recovery, Step, StepName, step};
pub(crate) use steps::{ask, begin_recovery, confirm, past_the_limit};
pub(crate) use transaction::{Entered as EnteredTransaction, Running, Within, enter as enter_transaction};
pub use two_phase::{Attempt, Begun, Interrupted, Replayed};
use unprotected::unprotected;
pub(crate) use unprotected::{polled, unguarded, without_key};

/// Makes a call. The caller pins `body`; it is dropped as soon as it is done or its lease is lost. `codec` is `&mut`
/// although nothing changes it, so that it need not be `Sync`.
pub(crate) async fn run<T, E, C, S, B>(
    call: Result<Arc<Prepared<S>>, Box<Error>>,
    codec: &mut C,
    body: Pin<&mut Option<B>>,
) -> Result<T, Failure<E>>
where
    C: Codec<T, E>,
    S: Store,
    B: Future<Output = Result<T, E>>,
{
    // In a statement of its own, so that the future does not keep the `Result` while it waits.
    let call = call.map_err(|error| *error)?;
    let mut entered = enter(call).await?;
    finish(&mut entered, codec, body).await
}

/// A call that has claimed its key, has a replay, or runs unprotected.
pub(crate) struct Entered<S: Store> {
    call: Arc<Prepared<S>>,
    entry: Entry<S>,
}

/// The first half of a call: everything before its body. Dropping the returned value releases the key.
pub(crate) async fn enter<S: Store>(call: Arc<Prepared<S>>) -> Result<Entered<S>, Error> {
    let entered = claim::enter(&call).instrument(call.span.clone()).await;
    let entry = entered.map_err(|error| call.refuse(error))?;
    Ok(Entered { call, entry })
}

/// The second half of a call: runs the body and records its result, or returns the recorded one. Call it once.
pub(crate) async fn finish<T, E, C, S, B>(
    entered: &mut Entered<S>,
    codec: &mut C,
    body: Pin<&mut Option<B>>,
) -> Result<T, Failure<E>>
where
    C: Codec<T, E>,
    S: Store,
    B: Future<Output = Result<T, E>>,
{
    let Entered { call, entry } = entered;
    let call = &*call;
    let attempt = match entry {
        Entry::Run(attempt) => attempt,
        Entry::Replay(replay) => return decode(call, codec, replay),
        Entry::Unprotected => return unprotected(call, body).await,
    };
    attempt.start();
    let result = {
        // From here on the body is dropped before the attempt, so no other call gets the key while this body exists.
        let mut body = Body(body);
        let ended = drive(attempt, body.0.as_mut()).await;
        drop(body);
        match ended {
            Ended::Returned(result) => result,
            Ended::Panicked(payload) => {
                Box::pin(attempt.abandon()).await;
                resume_unwind(payload)
            }
            Ended::TimedOut(after) => {
                Box::pin(attempt.time_out(after)).await;
                return Err(call.refuse(Error::TimedOut { call: call.id(), after }).into());
            }
            Ended::LeaseLost => {
                let replay = Box::pin(attempt.after_loss()).await?;
                return decode(call, codec, &replay);
            }
        }
    };
    if !is_finished(attempt, codec, &result) {
        let retry_after = codec.retry_after(&result, attempt.grant().attempt);
        Box::pin(attempt.release(retry_after, result.is_ok())).await;
        return result.map_err(Failure::Body);
    }
    // In its span, as the claim is, because a layer of the store may keep which one it is. The span is lent, not cloned: every
    // call in flight has room for this future.
    let mut recording = pin!(attempt.record());
    match poll_fn(move |context| call.span.in_scope(|| recording.as_mut().poll(context))).await {
        Recorded::Kept(_) => result.map_err(Failure::Body),
        Recorded::Superseded(replay) => decode(call, codec, &replay),
        Recorded::Lost(error) => Err(error.into()),
    }
}

/// Makes a call in a separate task, which continues when the caller goes away. If `unguarded`, the body runs without a
/// call.
pub(crate) async fn run_detached<T, E, C, S, B>(
    call: Call<S>,
    unguarded: bool,
    mut codec: C,
    body: B,
) -> Result<T, Failure<E>>
where
    T: Send + 'static,
    E: Send + 'static,
    C: Codec<T, E> + Send + 'static,
    S: Store,
    B: Future<Output = Result<T, E>> + Send + 'static,
{
    let runtime = call.runtime()?;
    let operation = call.operation_name();
    let pending = Pending::new(call.process(), Work::Body);
    let task = async move {
        let _pending = pending;
        let body = pin!(Some(body));
        if unguarded {
            unguarded_frame(without_key(call.operation(), call.observer(), body)).await
        } else {
            let mut entered = enter(call.prepare().map_err(|error| *error)?).await?;
            finish(&mut entered, &mut codec, body).await
        }
    };
    match runtime.spawn(task.in_current_span()).await {
        Ok(result) => result,
        Err(failure) => match failure.try_into_panic() {
            Ok(payload) => resume_unwind(payload),
            Err(_) => {
                Err(Error::configuration(&operation, "the runtime was shut down during the call").into())
            }
        },
    }
}

/// Drops the body when this guard is dropped, and not only at the end of the frame in which it is pinned.
struct Body<'a, B>(Pin<&'a mut Option<B>>);

impl<B> Drop for Body<'_, B> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// How the body ended.
pub(crate) enum Ended<R> {
    Returned(R),
    Panicked(Box<dyn Any + Send>),
    LeaseLost,
    TimedOut(Duration),
}

/// Polls the body and, beside it, the renewal of its lease.
async fn drive<T, E, S: Store, B: Future<Output = Result<T, E>>>(
    attempt: &attempt::Attempt<S>,
    mut body: Pin<&mut Option<B>>,
) -> Ended<Result<T, E>> {
    let call = attempt.call();
    let current = Current::new(Context::of(attempt.claimed().clone()), Some(attempt.claimed().clone()));
    let mut renewal = RenewalInTask::new(attempt.claimed());
    let mut limit = Limit::new(call.policy.timeout);
    poll_fn(|cx| {
        let _entered = call.span.enter();
        let Some(running) = body.as_mut().as_pin_mut() else {
            return Poll::Ready(Ended::LeaseLost);
        };
        match catch_unwind(AssertUnwindSafe(|| current.enter(|| running.poll(cx)))) {
            Ok(Poll::Ready(returned)) => Poll::Ready(Ended::Returned(returned)),
            Ok(Poll::Pending) => {
                if let Poll::Ready(after) = limit.poll(cx) {
                    return Poll::Ready(Ended::TimedOut(after));
                }
                // Also for a body that has used up its task's budget, and would otherwise lose its lease.
                let lost = pin!(unconstrained(poll_fn(|cx| renewal.poll_lost(cx)))).poll(cx);
                lost.map(|()| Ended::LeaseLost)
            }
            Err(payload) => Poll::Ready(Ended::Panicked(payload)),
        }
    })
    .await
}

/// The `timeout` of a body. It has no timer until the body is pending for the first time.
struct Limit {
    end: Option<(Duration, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Limit {
    /// No limit if the end is too far away to have a time: nobody has checked the policy of a call without a key.
    fn new(timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|after| Some((after, Instant::now().checked_add(after)?)));
        Self { end, timer: None }
    }

    /// Ready when the body's time is over, also for a body that is always ready and so uses up its task's budget: tokio's timers
    /// are pending then, as tokio's own `timeout` knows.
    fn poll(&mut self, cx: &mut std::task::Context<'_>) -> Poll<Duration> {
        let Some((after, end)) = self.end else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        pin!(unconstrained(timer)).poll(cx).map(|()| after)
    }
}
