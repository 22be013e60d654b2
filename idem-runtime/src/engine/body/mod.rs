//! The third phase: the body runs under its claim.
//!
//! Owns how a body is polled beside the renewal of its lease, and every way in which it ends. [`context`] is
//! what a body can learn about its call, and [`steps`] are its recovery points. Bodies without a lease also
//! run here: in a caller's transaction, if the store was down and the operation fails open, or if the call
//! has no key.
//!
//! The functions of this file are compiled for each body. Keep them short.

pub(super) mod context;
pub(super) mod steps;

use std::any::Any;
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep_until};
use tracing::Span;

use self::context::{Context, unguarded_frame};
use crate::engine::lease::{Watch, renewed_until_lost};
use crate::engine::prepare::Call;
use crate::engine::prepare::operation::Operation;
use crate::engine::record::attempt::{Attempt, Recorded};
use crate::engine::record::codec::Codec;
use crate::engine::report::{CallEnd, CallEvent, Event, Observation, Outcome};
use crate::error::{CallId, Error};
use idem_core::Store;

/// Runs the body under its claim, and records its result or releases the claim.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
pub(crate) fn run<R, T, E, S, B>(
    call: &Call<S>,
    attempt: &mut Attempt<S>,
    codec: &Codec<R, T, E>,
    body: Pin<&mut Option<B>>,
) -> impl Future<Output = R>
where
    S: Store,
    B: Future<Output = R>,
{
    async move {
        attempt.start();
        let result = {
            // From here on the body is dropped before the attempt, so no other call gets the key while this
            // body exists.
            let mut body = Body(body);
            let ended = {
                let context = Context::of(attempt.claimed.clone());
                let _watch = Watch::over(attempt.claimed.clone());
                let lost = pin!(renewed_until_lost(attempt.claimed.clone()));
                drive(Some(&context), &call.span, call.policy.timeout, lost, body.0.as_mut()).await
            };
            drop(body);
            match ended {
                Ended::Returned(result) => result,
                Ended::Panicked(payload) => {
                    Box::pin(attempt.release()).await;
                    resume_unwind(payload)
                }
                Ended::TimedOut(after) => {
                    Box::pin(attempt.time_out(after)).await;
                    return codec.refusal(call.refuse(Error::TimedOut { call: call.id(), after }));
                }
                Ended::LeaseLost => {
                    return match Box::pin(attempt.after_loss()).await {
                        Ok(replay) => codec.replayed(call, &replay),
                        Err(error) => codec.refusal(error),
                    };
                }
            }
        };
        if !attempt.is_finished(codec, &result) {
            let retry_after = codec.retry_delay(&result, attempt.claimed.grant.attempt);
            attempt.not_recorded(retry_after, codec.is_value(&result));
            Box::pin(attempt.release()).await;
            return result;
        }
        match call.in_span(pin!(attempt.record())).await {
            Recorded::Kept(_) => result,
            Recorded::Superseded(replay) => codec.replayed(call, &replay),
            Recorded::Lost(error) => codec.refusal(error),
        }
    }
}

/// Drops the body when this guard is dropped. Without the guard, the body would live until the end of the
/// function that pinned it.
struct Body<'a, B>(Pin<&'a mut Option<B>>);

impl<B> Drop for Body<'_, B> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

/// How the body ended.
#[derive(Debug)]
pub enum Ended<R> {
    /// It returned this.
    Returned(R),
    /// It panicked.
    Panicked(Box<dyn Any + Send>),
    /// Its claim was lost.
    LeaseLost,
    /// Its timeout was over. The value is the length of the timeout.
    TimedOut(Duration),
}

/// Polls a body together with what may end the body earlier: its timeout, and the loss of its claim. Without
/// a `context`, the body has no guard.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
pub(super) fn drive<B: Future>(
    context: Option<&Context>,
    span: &Span,
    timeout: Option<Duration>,
    lost: Pin<&mut impl Future<Output = ()>>,
    mut body: Pin<&mut Option<B>>,
) -> impl Future<Output = Ended<B::Output>> {
    async move {
        // There is no limit if the end is too far away for an `Instant`. This can happen, because nobody has
        // checked the policy of a call without a key.
        let end = timeout.and_then(|after| Some((after, Instant::now().checked_add(after)?)));
        let limit = async {
            let Some((after, end)) = end else { return pending().await };
            // The timer is made at the first poll. A body that is ready at once needs none.
            Box::pin(sleep_until(end)).await;
            after
        };
        // `unconstrained`, because a body whose awaits are always ready uses up its task's budget. Without a
        // budget, tokio's timers would stay pending, and the body would lose its lease. Tokio's own `timeout`
        // does the same.
        let (mut limit, mut lost) = (pin!(unconstrained(limit)), pin!(unconstrained(lost)));
        poll_fn(|cx| {
            let _entered = span.enter();
            let Some(running) = body.as_mut().as_pin_mut() else { return Poll::Ready(Ended::LeaseLost) };
            let poll = || match context {
                Some(context) => context.enter(|| running.poll(cx)),
                None => running.poll(cx),
            };
            match catch_unwind(AssertUnwindSafe(poll)) {
                Ok(Poll::Ready(result)) => return Poll::Ready(Ended::Returned(result)),
                Ok(Poll::Pending) => {}
                Err(payload) => return Poll::Ready(Ended::Panicked(payload)),
            }
            match limit.as_mut().poll(cx) {
                Poll::Ready(after) => Poll::Ready(Ended::TimedOut(after)),
                Poll::Pending => lost.as_mut().poll(cx).map(|()| Ended::LeaseLost),
            }
        })
        .await
    }
}

/// Runs a body without any guard, but not longer than its timeout. Then reports to the observer that the body
/// ran unprotected.
pub(super) async fn unguarded<B: Future>(
    timeout: Option<Duration>,
    observer: Option<&Observation>,
    body: Pin<&mut Option<B>>,
) -> Result<B::Output, Duration> {
    let result = unguarded_frame(until_timeout(None, &Span::none(), timeout, body)).await;
    if let Some(observer) = observer {
        observer.report(&CallEvent::Outcome(Outcome::Unprotected));
    }
    result
}

/// Runs the body of a call whose key is missing.
pub(crate) async fn without_key<R, T, E, B>(
    operation: &Operation,
    codec: &Codec<R, T, E>,
    observer: Option<Arc<Observation>>,
    body: Pin<&mut Option<B>>,
) -> R
where
    B: Future<Output = R>,
{
    let result = unguarded(operation.policy.timeout, observer.as_deref(), body).await;
    result.unwrap_or_else(|after| {
        let error = Error::TimedOut { call: CallId::without_key(operation.name()), after };
        if let Some(observer) = observer {
            observer.report(&CallEvent::Ended(&CallEnd::Refused(error.clone())));
        }
        codec.refusal(error)
    })
}

/// Runs the body without a claim.
pub(crate) async fn unprotected<R, T, E, S, B>(
    call: &Arc<Call<S>>,
    codec: &Codec<R, T, E>,
    body: Pin<&mut Option<B>>,
) -> R
where
    S: Store,
    B: Future<Output = R>,
{
    call.tell(&CallEvent::Outcome(Outcome::Unprotected));
    let context = Context::unclaimed(call.clone(), None);
    until_timeout(Some(&context), &call.span, call.policy.timeout, body).await.unwrap_or_else(|after| {
        call.report(&Event::TIMED_OUT.after(after), 0);
        codec.refusal(call.refuse(Error::TimedOut { call: call.id(), after }))
    })
}

/// Polls a body that has no claim, and drops it when it has ended. `Err` if the timeout was over first.
async fn until_timeout<B: Future>(
    context: Option<&Context>,
    span: &Span,
    timeout: Option<Duration>,
    body: Pin<&mut Option<B>>,
) -> Result<B::Output, Duration> {
    let mut body = Body(body);
    match drive(context, span, timeout, pin!(pending()), body.0.as_mut()).await {
        Ended::Returned(result) => Ok(result),
        Ended::Panicked(payload) => resume_unwind(payload),
        Ended::TimedOut(after) => Err(after),
        // Only a claim has a lease, and this call has no claim.
        Ended::LeaseLost => Err(Duration::ZERO),
    }
}
