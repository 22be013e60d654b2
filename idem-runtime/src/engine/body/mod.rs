//! The third phase: the body runs under its claim.
//!
//! Owns how a body is polled beside the renewal of its lease, and every way in which it ends. [`context`] is what it can learn
//! about its call, [`steps`] are its recovery points, and [`unprotected`] bodies have no claim.
//!
//! The functions of this file are compiled for each body. Keep them short.

pub(super) mod context;
pub(super) mod steps;
pub(super) mod unprotected;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use tokio::task::coop::unconstrained;
use tokio::time::{Instant, Sleep, sleep_until};

use self::context::{Context, Current};
use crate::engine::lease::in_task::RenewalInTask;
use crate::engine::lease::thread::Watch;
use crate::engine::prepare::call::Call;
use crate::engine::record::attempt::{Attempt, Recorded};
use crate::engine::record::codec::Codec;
use crate::error::Error;
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
            let retry_after = codec.retry_delay(&result, attempt.grant().attempt);
            attempt.not_recorded(retry_after, codec.is_value(&result));
            Box::pin(attempt.release()).await;
            return result;
        }
        // In its span, as the claim is, because a layer of the store may keep which one it is. The span is lent, not cloned: every
        // call in flight has room for this future.
        let mut recording = pin!(attempt.record());
        match poll_fn(|cx| call.span.in_scope(|| recording.as_mut().poll(cx))).await {
            Recorded::Kept(_) => result,
            Recorded::Superseded(replay) => codec.replayed(call, &replay),
            Recorded::Lost(error) => codec.refusal(error),
        }
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
#[derive(Debug)]
pub enum Ended<R> {
    /// It returned this.
    Returned(R),
    /// It panicked.
    Panicked(Box<dyn Any + Send>),
    /// Its claim was lost.
    LeaseLost,
    /// Its timeout, which is this long, was over.
    TimedOut(Duration),
}

/// Polls the body and, beside it, the renewal of its lease.
async fn drive<S: Store, B: Future>(attempt: &Attempt<S>, mut body: Pin<&mut Option<B>>) -> Ended<B::Output> {
    let call = attempt.call();
    let current = Current::new(Context::of(attempt.claimed().clone()), Some(attempt.claimed().clone()));
    let _watch = Watch::over(attempt.claimed().clone());
    let mut renewal = RenewalInTask::new(attempt.claimed());
    let mut limit = Limit::new(call.policy.timeout);
    poll_fn(|cx| {
        let _entered = call.span.enter();
        let Some(running) = body.as_mut().as_pin_mut() else {
            return Poll::Ready(Ended::LeaseLost);
        };
        match catch_unwind(AssertUnwindSafe(|| current.enter(|| running.poll(cx)))) {
            Ok(Poll::Ready(result)) => Poll::Ready(Ended::Returned(result)),
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
pub(crate) struct Limit {
    end: Option<(Duration, Instant)>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Limit {
    /// No limit if the end is too far away to have a time: nobody has checked the policy of a call without a key.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        let end = timeout.and_then(|after| Some((after, Instant::now().checked_add(after)?)));
        Self { end, timer: None }
    }

    /// Ready when the body's time is over, also for a body that is always ready and so uses up its task's budget: tokio's timers
    /// are pending then, as tokio's own `timeout` knows.
    pub(crate) fn poll(&mut self, cx: &mut TaskContext<'_>) -> Poll<Duration> {
        let Some((after, end)) = self.end else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end)));
        pin!(unconstrained(timer)).poll(cx).map(|()| after)
    }
}
