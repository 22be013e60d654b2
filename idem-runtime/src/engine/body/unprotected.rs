//! Bodies that run without a claim: the store was down and the operation fails open, or the call has no key.
//!
//! Owns how such a body is polled, and that its `timeout` ends it. It knows no store and no record.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::context::{CallEnd, Context, Current, Observation, Outcome, unguarded_frame};
use super::{Body, Limit};
use crate::engine::prepare::call::Call;
use crate::engine::prepare::operation::Operation;
use crate::engine::record::codec::Codec;
use crate::engine::report::Event;
use crate::error::{CallId, Error};
use idem_core::Store;

/// Runs a body without any guard, and reports that to the observer of the call.
pub(crate) async fn unguarded<B: Future>(body: B) -> B::Output {
    let result = unguarded_frame(body).await;
    if let Some(observer) = Observation::current() {
        observer.set(Outcome::Unprotected);
    }
    result
}

/// Polls the body itself.
pub(crate) async fn polled<B: Future>(mut body: Pin<&mut Option<B>>) -> B::Output {
    poll_fn(|cx| body.as_mut().as_pin_mut().map_or(Poll::Pending, |running| running.poll(cx))).await
}

/// Runs the body of a call whose key is missing, until its `timeout` is over.
pub(crate) async fn without_key<R, T, E, B>(
    operation: &Operation,
    codec: &Codec<R, T, E>,
    observer: Option<Arc<Observation>>,
    body: Pin<&mut Option<B>>,
) -> R
where
    B: Future<Output = R>,
{
    until_timeout(operation.policy.timeout, body).await.unwrap_or_else(|after| {
        let error = Error::TimedOut { call: CallId::without_key(operation.name()), after };
        if let Some(observer) = observer {
            observer.end(&CallEnd::Refused(error.clone()));
        }
        codec.refusal(error)
    })
}

/// Runs the body without a claim.
pub(crate) async fn unprotected<R, T, E, S, B>(
    call: &Call<S>,
    codec: &Codec<R, T, E>,
    body: Pin<&mut Option<B>>,
) -> R
where
    S: Store,
    B: Future<Output = R>,
{
    call.observe(Outcome::Unprotected);
    let current = Current::new(Context::new(call.key.clone(), None, call.enclosing.clone()), None);
    let mut running = pin!(until_timeout(call.policy.timeout, body));
    let ended = poll_fn(|cx| {
        let _entered = call.span.enter();
        current.enter(|| running.as_mut().poll(cx))
    });
    ended.await.unwrap_or_else(|after| {
        call.report(Event::TimedOut(after), 0);
        codec.refusal(call.refuse(Error::TimedOut { call: call.id(), after }))
    })
}

/// Polls a body that has no claim, and drops it when it has ended. `Err` if the time was over first.
async fn until_timeout<B: Future>(
    timeout: Option<Duration>,
    body: Pin<&mut Option<B>>,
) -> Result<B::Output, Duration> {
    let mut body = Body(body);
    let mut limit = Limit::new(timeout);
    poll_fn(|cx| {
        let Some(running) = body.0.as_mut().as_pin_mut() else { return Poll::Pending };
        match running.poll(cx) {
            Poll::Ready(result) => Poll::Ready(Ok(result)),
            Poll::Pending => limit.poll(cx).map(Err),
        }
    })
    .await
}
