//! The public API for calls whose body is not one future: [`Operation::begin`], and the [`Attempt`] that is ended by hand.
//!
//! Owns how the two halves of a call are used apart from each other. What happens in them is in `claim` and `attempt`.
//!
//! The lease of such an attempt is renewed by a task of the runtime in which `begin` was called, and by the renewal
//! thread if that runtime is blocked or has ended.

mod replayed;

use std::fmt;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::future::select;
use serde::Serialize;
use tokio::task::coop::unconstrained;
use tracing::Instrument;

use crate::engine::body::Limit;
use crate::engine::body::context::{Context, Current, Outcome};
use crate::engine::claim::claimed::Claimed;
use crate::engine::claim::{Entry, enter};
use crate::engine::lease::in_task::RenewalInTask;
use crate::engine::lease::thread::Watch;
use crate::engine::prepare::call::Call;
use crate::engine::prepare::operation::{Operation, rendered};
use crate::engine::record::attempt::{Attempt as Claim, Recorded};
use crate::engine::record::background::{Pending, Work};
use crate::engine::record::encoding::{Encoded, Stored, to_stored};
use crate::engine::report::Event;
use crate::error::{Error, Loss};
use idem_core::protocol::{StoredResult, Verdict};
use idem_core::{KeyPart, Store};

pub use replayed::{Interrupted, Replayed};

/// The outcome of [`Operation::begin`].
pub enum Begun<S: Store> {
    /// The key has a result: return it, and do not do the work.
    Replay(Replayed<S>),
    /// The key is this call's: do the work, then end the attempt.
    Run(Attempt<S>),
}

impl<R> Operation<R> {
    /// Begins a call whose work is not one async body: claims the key, and waits for it if the operation has a
    /// [`wait`](Self::wait). For frameworks, for callbacks, and for work that one function starts and another ends.
    ///
    /// [`run`](Self::run) does all of this for a body that is one future, and is the better choice for it.
    ///
    /// | `begin` returns | then |
    /// |---|---|
    /// | [`Begun::Replay`] | the key has a result: return it |
    /// | [`Begun::Run`] | do the work, then [`complete`](Attempt::complete) or [`fail`](Attempt::fail) the attempt; dropping it counts as a crash |
    /// | an error | the call is refused; the work was not done |
    ///
    /// # Errors
    ///
    /// Every [`Error`] with which [`run`](Self::run) refuses a call.
    ///
    /// # Cancellation
    ///
    /// Dropping the future releases the key in the background, as if the call had not been made.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use idem::{Begun, Error, MemoryStore, Operation};
    ///
    /// async fn charge(store: &MemoryStore, order: &str) -> Result<u64, Error> {
    ///     match Operation::new("payments.charge").begin(store, order).await? {
    ///         Begun::Replay(replay) => replay.value(),
    ///         Begun::Run(attempt) => {
    ///             let gateway_key = attempt.context().downstream_key("gateway");
    ///             // .. the payment, with that key ..
    ///             let receipt = u64::from(attempt.context().attempt());
    ///             attempt.complete(&receipt).await?;
    ///             Ok(receipt)
    ///         }
    ///     }
    /// }
    ///
    /// let store = MemoryStore::new();
    /// assert_eq!(charge(&store, "order-42").await?, 1);
    /// assert_eq!(charge(&store, "order-42").await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin<S, K>(
        &self,
        store: &S,
        key: K,
    ) -> impl Future<Output = Result<Begun<S>, Error>> + use<R, S, K>
    where
        S: Store,
        K: KeyPart,
    {
        let (mut operation, store, key) = (self.without_rules(), store.clone(), rendered(&key));
        if operation.policy.recovers {
            // The work looks at `Context::recovered` itself.
            operation.policy.to_mut().recovers = false;
        }
        async move {
            let call = Call::new(operation, store, key).map_err(|error| *error)?;
            Ok(match enter(&call).await? {
                Entry::Replay(replay) => Begun::Replay(Replayed::new(call, replay)),
                Entry::Run(claim) => Begun::Run(Attempt::claimed(claim)),
                Entry::Unprotected => Begun::Run(Attempt::unprotected(call)),
            })
        }
    }
}

/// One attempt at the work of a call that [`Operation::begin`] began. Its lease is renewed while it lives.
///
/// End it with [`complete`](Self::complete), [`complete_error`](Self::complete_error), [`record`](Self::record),
/// [`fail`](Self::fail), [`abandon`](Self::abandon) or [`give_back`](Self::give_back). Dropping it counts as a crash of
/// the work: the next attempt is [`recovered`](Context::recovered), or the key is in doubt under
/// [`OnCrash::InDoubt`](crate::OnCrash::InDoubt).
///
/// [`drain`](crate::drain) waits for it as for a detached body.
#[must_use = "dropping an attempt counts as a crash of its work"]
pub struct Attempt<S: Store> {
    hold: Hold<S>,
    context: Context,
    /// Lets the renewal thread renew the lease. `None` if the attempt is unprotected.
    _watch: Option<Watch>,
    // Dropped last, so that the release counts before the attempt is over.
    _pending: Pending,
}

enum Hold<S: Store> {
    Claimed(Claim<S>),
    /// The store is down, and the operation fails open.
    Unprotected(Arc<Call<S>>),
}

impl<S: Store> Attempt<S> {
    fn claimed(mut claim: Claim<S>) -> Self {
        claim.start();
        let watch = Watch::over(claim.claimed().clone());
        renew(claim.claimed());
        let pending = Pending::new(&claim.call().process, Work::Body);
        let context = Context::of(claim.claimed().clone());
        Self { hold: Hold::Claimed(claim), context, _watch: Some(watch), _pending: pending }
    }

    fn unprotected(call: Arc<Call<S>>) -> Self {
        call.observe(Outcome::Unprotected);
        let pending = Pending::new(&call.process, Work::Body);
        let context = Context::new(call.key.clone(), None, call.enclosing.clone());
        Self { hold: Hold::Unprotected(call), context, _watch: None, _pending: pending }
    }

    fn call(&self) -> &Call<S> {
        match &self.hold {
            Hold::Claimed(claim) => claim.call(),
            Hold::Unprotected(call) => call,
        }
    }

    /// What the work can learn about its call: its attempt, its fence, whether it recovers from a crash, keys for other
    /// services, and when its claim is lost.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Runs a part of the work that is a future, as [`Operation::run`] runs a body: [`context`](crate::context) and
    /// [`step`](crate::step) work in it, and it is dropped when the claim is lost or the operation's
    /// [`timeout`](Operation::timeout) is over. Each call of `run` has the whole timeout.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if the future was dropped. The attempt is over then.
    ///
    /// # Panics
    ///
    /// Only if `work` panics, which drops the attempt.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the attempt: a crash.
    pub async fn run<F: Future>(self, work: F) -> Result<(F::Output, Self), Interrupted<S>> {
        let ended = {
            let current = self.current();
            let mut limit = Limit::new(self.call().policy.timeout);
            let mut work = pin!(work);
            let mut lost = pin!(unconstrained(self.claim_ended()));
            poll_fn(|cx| {
                let _entered = self.call().span.enter();
                if let Poll::Ready(output) = current.enter(|| work.as_mut().poll(cx)) {
                    return Poll::Ready(Ended::Returned(output));
                }
                if let Poll::Ready(after) = limit.poll(cx) {
                    return Poll::Ready(Ended::TimedOut(after));
                }
                lost.as_mut().poll(cx).map(|()| Ended::Lost)
            })
            .await
        };
        match ended {
            Ended::Returned(output) => Ok((output, self)),
            Ended::TimedOut(after) => {
                let id = self.call().id();
                let error = self.call().refuse(Error::TimedOut { call: id, after });
                match self.hold {
                    Hold::Claimed(mut claim) => claim.time_out(after).await,
                    Hold::Unprotected(call) => call.report(Event::TimedOut(after), 0),
                }
                Err(Interrupted::Refused(error))
            }
            Ended::Lost => Err(self.lost().await),
        }
    }

    fn current(&self) -> Current {
        let recorder = match &self.hold {
            Hold::Claimed(claim) => Some(claim.claimed().clone() as Arc<_>),
            Hold::Unprotected(_) => None,
        };
        Current::new(self.context.clone(), recorder)
    }

    async fn claim_ended(&self) {
        match &self.hold {
            Hold::Claimed(claim) => claim.claimed().lease.ended().await,
            Hold::Unprotected(_) => pending().await,
        }
    }

    /// What the caller gets after the claim was lost.
    async fn lost(self) -> Interrupted<S> {
        let Hold::Claimed(mut claim) = self.hold else {
            // Does not happen: what is not held is not lost.
            return Interrupted::Refused(Error::LeaseLost { call: self.context.id(), loss: Loss::Unknown });
        };
        match claim.after_loss().await {
            Ok(replay) => Interrupted::Replay(Replayed::new(claim.claimed().call.clone(), replay)),
            Err(error) => Interrupted::Refused(error),
        }
    }

    /// The work is done, with this value: records it, so that duplicates get it.
    ///
    /// The value counts although the store fails: recording goes on in the background then, and the outcome is
    /// [`Outcome::Unrecorded`]. A value that cannot be encoded, or is too large, is not an error either: duplicates get
    /// [`Error::ResultNotStored`].
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if another attempt has taken over the key.
    ///
    /// # Cancellation
    ///
    /// Dropping the future changes nothing, also before its first poll: the value is recorded in the background.
    pub fn complete<T: Serialize>(
        self,
        value: &T,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S, T> {
        let stored = to_stored(value, self.call().max_result_bytes());
        self.end(Verdict::Completed, stored)
    }

    /// The work failed for good: records this error, so that duplicates get it from [`Replayed::result`].
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn complete_error<E: Serialize>(
        self,
        error: &E,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S, E> {
        let stored = to_stored(error, self.call().max_result_bytes());
        self.end(Verdict::Failed, stored)
    }

    /// As [`complete`](Self::complete), with a result that the caller has encoded. Its first byte must be that of a
    /// [`ResultFormat`](crate::protocol::ResultFormat).
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn record(
        self,
        verdict: Verdict,
        result: StoredResult,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S> {
        self.end(verdict, result.into())
    }

    /// Not an `async fn`, and neither are its callers: the result counts also if their future is dropped before its first poll.
    fn end(
        mut self,
        verdict: Verdict,
        stored: Stored,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S> {
        if let Hold::Claimed(claim) = &mut self.hold {
            let encoded = Encoded::new(verdict, stored);
            claim.finished(&encoded);
            // The work is over: nothing that it carried starts a step while the result is recorded.
            claim.claimed().lease.end();
            if let Some(fault) = &encoded.stored.fault {
                claim.call().report(Event::NotStored(fault), claim.grant().attempt);
            }
        }
        self.recorded()
    }

    async fn recorded(self) -> Result<Outcome, Interrupted<S>> {
        let Hold::Claimed(mut claim) = self.hold else { return Ok(Outcome::Unprotected) };
        let call = claim.claimed().call.clone();
        match claim.record().instrument(call.span.clone()).await {
            Recorded::Kept(outcome) => Ok(outcome),
            Recorded::Superseded(replay) => Err(Interrupted::Replay(Replayed::new(call, replay))),
            Recorded::Lost(error) => Err(Interrupted::Refused(error)),
        }
    }

    /// The work failed and has no result: releases the key for the next attempt. It is due after `retry_after`, or as
    /// the operation's [`retry_after`](Operation::retry_after) says if that is `None`. Returns how long that is.
    ///
    /// If the store fails, the release goes on in the background.
    ///
    /// # Cancellation
    ///
    /// Dropping the future changes nothing, also before its first poll: the key is released in the background.
    pub fn fail(mut self, retry_after: Option<Duration>) -> impl Future<Output = Duration> + use<S> {
        let mut delay = Duration::ZERO;
        if let Hold::Claimed(claim) = &mut self.hold {
            let number = claim.grant().attempt;
            let by_policy = claim.call().policy.retry_after.map(|pace| pace.delay(number));
            delay = retry_after.or(by_policy).unwrap_or_default();
            claim.not_recorded(Some(delay), false);
        }
        async move {
            // The whole attempt: `drain` waits for it.
            let mut attempt = self;
            if let Hold::Claimed(claim) = &mut attempt.hold {
                claim.release().await;
            }
            delay
        }
    }

    /// The work was not done, and may be asked for again in another form, such as a corrected request: deletes the record
    /// with its fingerprint and its count of attempts.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn forget(mut self) -> impl Future<Output = Result<(), Interrupted<S>>> + use<S> {
        if let Hold::Claimed(claim) = &mut self.hold {
            claim.forgotten();
        }
        let recorded = self.recorded();
        async move { recorded.await.map(drop) }
    }

    /// The work began and did not end, as if this were dropped. Returns once the key is released, or will be in the
    /// background.
    pub async fn abandon(self) {
        if let Hold::Claimed(mut claim) = self.hold {
            claim.abandon().await;
        }
    }

    /// The work did not begin: releases the key in the background, as if the call had not been made.
    pub fn give_back(self) {
        if let Hold::Claimed(mut claim) = self.hold {
            claim.unused();
        }
    }
}

impl<S: Store> fmt::Debug for Attempt<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("context", &self.context).finish_non_exhaustive()
    }
}

// Not derived, because that would need a store that is `Debug`.
impl<S: Store> fmt::Debug for Begun<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replay(replay) => f.debug_tuple("Replay").field(replay).finish(),
            Self::Run(attempt) => f.debug_tuple("Run").field(attempt).finish(),
        }
    }
}

/// How a part of the work ended.
enum Ended<T> {
    Returned(T),
    TimedOut(Duration),
    Lost,
}

/// Renews the lease of a claim until it ends.
fn renew<S: Store>(claimed: &Arc<Claimed<S>>) {
    let mut renewal = RenewalInTask::new(claimed);
    let runtime = &claimed.call.runtime;
    let claimed = claimed.clone();
    runtime.spawn(async move {
        let lost = pin!(poll_fn(|cx| renewal.poll_lost(cx)));
        select(lost, pin!(claimed.lease.ended())).await;
    });
}
