//! What one call does: claim, run, keep the lease, record; or wait, or replay.
//!
//! Owns everything that happens between a caller and a store. It knows the protocol's answers but
//! not its rules, and bytes but not how a store keeps them.
//!
//! Only this file, and a few lines of `steps` and `recovering`, are generic over the body, and are kept short
//! for that reason.

mod attempt;
mod background;
mod call;
mod claim;
mod codec;
mod insist;
mod keeper;
mod lease;
mod operation;
mod recorder;
mod recovering;
mod report;
mod returns;
mod site;
mod steps;
mod transaction;
mod upkeep;
mod wait;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use tracing::Instrument;

use crate::context::{Context, Current, Ending, Observation, Outcome};
use crate::error::Error;
use crate::protocol::{Replay, StoredResult, Tombstone, Verdict};
use crate::store::Store;

use attempt::{Attempt, Recorded};
use claim::Entry;
use report::Event;
use upkeep::Upkeep;

pub(crate) use call::{Call, Prepared};
pub(crate) use codec::{Codec, Terminal, Values, from_bytes, to_stored};
pub use operation::{Operation, TerminalOperation};
pub use recovering::RecoveringOperation;
pub use returns::Recordable;
pub(crate) use returns::{Failure, Return, Unbound};
pub use site::Site;
pub use steps::{MAX_STEP_NAME_BYTES, Recovery, Step, StepName, step};
pub(crate) use steps::{Recorder, ask, begin_recovery};
pub(crate) use transaction::{Entered as EnteredTransaction, Running, Within, enter as enter_transaction};

/// Makes a call. `body` is pinned where it stands, and dropped there as soon as it is done or its
/// lease is lost. `codec` is lent to be changed by nobody: so it need not be `Sync`.
pub(crate) async fn run<R, C, S, B>(
    call: Result<Arc<Prepared<S>>, Box<Error>>,
    codec: &mut C,
    body: Pin<&mut Option<B>>,
) -> Result<R::Value, R::Error>
where
    R: Return,
    C: Codec<R::Value, R::Error>,
    S: Store,
    B: Future<Output = R>,
{
    let mut entered = enter(call.map_err(|error| *error)?).await?;
    finish(&mut entered, codec, body).await
}

/// A call whose key was claimed, or need not be.
pub(crate) struct Entered<S: Store> {
    call: Arc<Prepared<S>>,
    entry: Entry<S>,
}

impl<S: Store> Entered<S> {
    /// Whether [`finish`] runs the body.
    #[cfg(feature = "http")]
    pub(crate) const fn runs_body(&self) -> bool {
        !matches!(self.entry, Entry::Replay(_))
    }
}

/// The first half of a call: all that comes before its body. Dropping what it gives gives the key back.
pub(crate) async fn enter<S: Store>(call: Arc<Prepared<S>>) -> Result<Entered<S>, Error> {
    let entered = claim::enter(&call).instrument(call.span.clone()).await;
    let entry = entered.map_err(|error| call.refuse(error))?;
    Ok(Entered { call, entry })
}

/// The second half: runs the body and records its result, or gives the recorded one. To be asked for once.
pub(crate) async fn finish<R, C, S, B>(
    entered: &mut Entered<S>,
    codec: &mut C,
    body: Pin<&mut Option<B>>,
) -> Result<R::Value, R::Error>
where
    R: Return,
    C: Codec<R::Value, R::Error>,
    S: Store,
    B: Future<Output = R>,
{
    let call = &entered.call;
    let attempt = match &mut entered.entry {
        Entry::Run(attempt) => attempt,
        Entry::Replay(replay) => return decode(call, codec, replay),
        Entry::Unprotected => return unprotected(call, body).await.into_result(),
    };
    attempt.start();
    let result = {
        // From here on dropped before the attempt: the key is not another's while this body is there.
        let mut body = Body(body);
        let ended = drive(attempt, body.0.as_mut()).await;
        drop(body);
        match ended {
            Ended::Returned(result) => result,
            Ended::Panicked(payload) => {
                Box::pin(attempt.abandon()).await;
                resume_unwind(payload)
            }
            Ended::LeaseLost => {
                let replay = Box::pin(attempt.after_loss()).await?;
                return decode(call, codec, &replay);
            }
        }
    };
    let encoded =
        if attempt.is_decided() { None } else { codec.encode(&result, call.policy.max_result_bytes) };
    let Some((verdict, stored)) = encoded else {
        Box::pin(attempt.release()).await;
        return result;
    };
    match attempt.record(verdict, stored).await {
        Recorded::Kept => result,
        Recorded::Superseded(replay) => decode(call, codec, &replay),
        Recorded::Lost(error) => Err(error.into()),
    }
}

/// Makes a call in a task of its own, which goes on when the caller goes away. One without a key can
/// be made plainly.
pub(crate) async fn run_detached<R, C, S, B>(
    call: Call<S>,
    plain: bool,
    mut codec: C,
    body: B,
) -> Result<R::Value, R::Error>
where
    R: Return,
    R::Value: Send + 'static,
    R::Error: Send + 'static,
    C: Codec<R::Value, R::Error> + Send + 'static,
    S: Store,
    B: Future<Output = R> + Send + 'static,
{
    let runtime = call.runtime()?;
    let operation = call.operation_name();
    let task = async move {
        let mut body = pin!(Some(body));
        if plain {
            polled(body.as_mut()).await.into_result()
        } else {
            run(call.prepare(), &mut codec, body).await
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

/// A body that goes when this does, and not when the frame goes that it is pinned in.
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
}

/// Polls the body, and the upkeep of its lease from outside it.
async fn drive<R: Return, S: Store, B: Future<Output = R>>(
    attempt: &Attempt<S>,
    mut body: Pin<&mut Option<B>>,
) -> Ended<Result<R::Value, R::Error>> {
    let call = attempt.call();
    let current = Current::new(Context::of(attempt.claimed().clone()), Some(attempt.claimed().clone()));
    let mut upkeep = Upkeep::new(attempt.claimed());
    poll_fn(|cx| {
        let _entered = call.span.enter();
        let Some(running) = body.as_mut().as_pin_mut() else {
            return Poll::Ready(Ended::LeaseLost);
        };
        match catch_unwind(AssertUnwindSafe(|| current.enter(|| running.poll(cx)))) {
            Ok(Poll::Ready(returned)) => Poll::Ready(Ended::Returned(returned.into_result())),
            Ok(Poll::Pending) => upkeep.poll_lost(cx).map(|()| Ended::LeaseLost),
            Err(payload) => Poll::Ready(Ended::Panicked(payload)),
        }
    })
    .await
}

/// Runs a body as if nothing guarded it, and tells who observes the call.
pub(crate) async fn plainly<B: Future>(body: B) -> B::Output {
    let observer = Observation::current();
    let returned = body.await;
    if let Some(observer) = observer {
        observer.set(Outcome::Unprotected);
    }
    returned
}

/// The body's own future.
pub(crate) async fn polled<B: Future>(mut body: Pin<&mut Option<B>>) -> B::Output {
    poll_fn(|cx| body.as_mut().as_pin_mut().map_or(Poll::Pending, |running| running.poll(cx))).await
}

/// Runs the body without a claim.
async fn unprotected<S: Store, B: Future>(call: &Prepared<S>, mut body: Pin<&mut Option<B>>) -> B::Output {
    call.observe(Outcome::Unprotected);
    let current = Current::new(Context::new(call.key.clone(), None), None);
    poll_fn(|cx| {
        let _entered = call.span.enter();
        match body.as_mut().as_pin_mut() {
            Some(running) => current.enter(|| running.poll(cx)),
            None => Poll::Pending,
        }
    })
    .await
}

fn decode<S: Store, C, T, E>(call: &Prepared<S>, codec: &C, replay: &Replay) -> Result<T, E>
where
    C: Codec<T, E>,
    E: From<Error>,
{
    let id = || (&call.key).into();
    match &replay.result {
        StoredResult::Value(bytes) => match codec.decode(replay.verdict, bytes) {
            Some(result) => {
                call.observe(Outcome::replayed(replay));
                call.report(Event::Replayed, replay.attempt);
                if replay.verdict == Verdict::Failed {
                    call.end(Ending::Terminal);
                }
                result
            }
            None => {
                call.report(Event::Undecodable, replay.attempt);
                Err(call.refuse(Error::Undecodable { call: id() }).into())
            }
        },
        StoredResult::Tombstone(Tombstone::Exhausted) => {
            Err(call.refuse(Error::Exhausted { call: id(), attempts: replay.attempt }).into())
        }
        StoredResult::Tombstone(reason) => {
            call.observe(Outcome::replayed(replay));
            call.report(Event::Replayed, replay.attempt);
            Err(call.refuse(Error::ResultNotStored { call: id(), reason: (*reason).into() }).into())
        }
    }
}
