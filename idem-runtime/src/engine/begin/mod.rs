//! The public API for calls whose body is not one future: [`Operation::begin`], and the [`Attempt`] that the
//! caller ends explicitly.
//!
//! Owns how a caller uses the two halves of a call separately: the claim, and the end of the attempt. The
//! modules `claim` and `attempt` own what happens in each half.
//!
//! A task in the runtime of the `begin` call renews the lease of such an attempt. If that runtime is blocked
//! or has ended, the renewal thread renews the lease.

mod replayed;

use std::fmt;
use std::future::pending;
use std::panic::resume_unwind;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select;
use serde::Serialize;

use crate::engine::body::context::Context;
use crate::engine::body::{Ended, drive};
use crate::engine::claim::claimed::AnyClaim;
use crate::engine::claim::{Entry, enter};
use crate::engine::lease::{Watch, renewed_until_lost};
use crate::engine::prepare::Call;
use crate::engine::prepare::operation::{Operation, rendered};
use crate::engine::record::attempt::{Attempt as Claim, Recorded};
use crate::engine::record::background::{Pending, Work};
use crate::engine::record::codec::{Stored, to_stored};
use crate::engine::report::{CallEvent, Event, Outcome};
use crate::error::{Error, Loss};
use idem_core::protocol::{StoredResult, Verdict};
use idem_core::{KeyPart, Store};

pub use replayed::{Interrupted, Replayed};

/// The outcome of [`Operation::begin`].
pub enum Begun<S: Store> {
    /// The key has a result: return it, and do not do the work.
    Replay(Replayed<S>),
    /// This call has the key: do the work, then end the attempt.
    Run(Attempt<S>),
}

impl<R> Operation<R> {
    /// Begins a call whose work is not one async body: claims the key, and waits for it if the operation has
    /// a [`wait`](Self::wait). Use it in frameworks, in callbacks, and for work that one function starts and
    /// another function ends.
    ///
    /// [`run`](Self::run) does all of this for a body that is one future, and is the better choice for such a
    /// body.
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
            // No `recover` function runs here, because the work itself looks at `Context::recovered`.
            operation.policy.to_mut().recovers = false;
        }
        async move {
            let call = Call::new(operation, store, key).map_err(|error| *error)?;
            Ok(match enter(&call).await? {
                Entry::Replay(replay) => Begun::Replay(Replayed::new(call, replay)),
                Entry::Run(claim) => Begun::Run(Attempt::claimed(call, claim)),
                Entry::Unprotected => Begun::Run(Attempt::unprotected(call)),
            })
        }
    }
}

/// One attempt at the work of a call that [`Operation::begin`] began. The engine renews its lease until the
/// attempt ends or is dropped.
///
/// End it with [`complete`](Self::complete), [`complete_error`](Self::complete_error),
/// [`record`](Self::record), [`fail`](Self::fail), [`forget`](Self::forget), [`abandon`](Self::abandon) or
/// [`give_back`](Self::give_back). Dropping it counts as a crash of the work: the next attempt is
/// [`recovered`](Context::recovered), or the key is in doubt under
/// [`OnCrash::InDoubt`](crate::OnCrash::InDoubt).
///
/// [`drain`](crate::drain) waits for an attempt as for a detached body.
#[must_use = "dropping an attempt counts as a crash of its work"]
pub struct Attempt<S: Store> {
    call: Arc<Call<S>>,
    /// `None` if the attempt is unprotected: the store was down, and the operation fails open.
    claim: Option<Claim<S>>,
    context: Context,
    /// Lets the renewal thread renew the lease.
    _watch: Option<Watch>,
    // Dropped last, so that `drain` already counts the release when it stops counting the attempt.
    _pending: Pending,
}

impl<S: Store> Attempt<S> {
    fn claimed(call: Arc<Call<S>>, mut claim: Claim<S>) -> Self {
        claim.start();
        let watch = Watch::over(claim.claimed.clone());
        call.runtime.spawn(renew(claim.claimed.clone()));
        let context = Context::of(claim.claimed.clone());
        let pending = Pending::new(&call.process, Work::Body);
        Self { call, claim: Some(claim), context, _watch: Some(watch), _pending: pending }
    }

    fn unprotected(call: Arc<Call<S>>) -> Self {
        call.tell(&CallEvent::Outcome(Outcome::Unprotected));
        let context = Context::unclaimed(call.clone(), None);
        let pending = Pending::new(&call.process, Work::Body);
        Self { call, claim: None, context, _watch: None, _pending: pending }
    }

    /// What the work can learn about its call: its attempt, its fence, whether it recovers from a crash, keys
    /// for other services, and when its claim is lost.
    pub const fn context(&self) -> &Context {
        &self.context
    }

    /// Runs a future that is a part of the work, as [`Operation::run`] runs a body:
    /// [`context`](crate::context) and [`step`](crate::step) work in it, and the future is dropped when the
    /// claim is lost or the operation's [`timeout`](Operation::timeout) is over. Each call of `run` has the
    /// whole timeout.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if the engine dropped `work`, which ends the attempt.
    ///
    /// # Panics
    ///
    /// Only if `work` panics, which drops the attempt.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the attempt, which counts as a crash.
    pub async fn run<F: Future>(self, work: F) -> Result<(F::Output, Self), Interrupted<S>> {
        let ended = {
            let lost = pin!(async {
                match &self.claim {
                    Some(claim) => claim.claimed.lease.ended().await,
                    None => pending().await,
                }
            });
            let (span, timeout, work) = (&self.call.span, self.call.policy.timeout, pin!(Some(work)));
            drive(Some(&self.context), span, timeout, lost, work).await
        };
        let (after, call) = match ended {
            Ended::Returned(output) => return Ok((output, self)),
            Ended::Panicked(payload) => resume_unwind(payload),
            Ended::TimedOut(after) => (Some(after), self.call),
            Ended::LeaseLost => (None, self.call),
        };
        Err(match (after, self.claim) {
            (Some(after), claim) => {
                let error = call.refuse(Error::TimedOut { call: call.id(), after });
                match claim {
                    Some(mut claim) => Box::pin(claim.time_out(after)).await,
                    None => call.report(&Event::TIMED_OUT.after(after), 0),
                }
                Interrupted::Refused(error)
            }
            (None, Some(mut claim)) => match Box::pin(claim.after_loss()).await {
                Ok(replay) => Interrupted::Replay(Replayed::new(call, replay)),
                Err(error) => Interrupted::Refused(error),
            },
            // Does not happen, because without a claim there is nothing to lose.
            (None, None) => Interrupted::Refused(Error::LeaseLost { call: call.id(), loss: Loss::Unknown }),
        })
    }

    /// The work is done: records this value, so that duplicates get it.
    ///
    /// The value counts even if the store fails. Then recording continues in the background, and the outcome
    /// is [`Outcome::Unrecorded`]. A value that cannot be encoded, or is too large, is not an error either:
    /// duplicates get [`Error::ResultNotStored`].
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if another attempt has taken over the key, or if the claim is lost and the engine
    /// cannot read the record.
    ///
    /// # Cancellation
    ///
    /// Dropping the future, even before its first poll, changes nothing: the value is recorded in the
    /// background.
    pub fn complete<T: Serialize>(
        self,
        value: &T,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S, T> {
        let stored = to_stored(value, self.call.max_result_bytes);
        self.end(Verdict::Completed, &stored)
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
        let stored = to_stored(error, self.call.max_result_bytes);
        self.end(Verdict::Failed, &stored)
    }

    /// As [`complete`](Self::complete), with a result that the caller has encoded. Its first bytes must
    /// identify a [`ResultFormat`](crate::protocol::ResultFormat).
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn record(
        self,
        verdict: Verdict,
        result: StoredResult,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S> {
        self.end(verdict, &Stored { result, fault: None })
    }

    /// This function and its callers are not `async fn`s, so that the result counts even if the future is
    /// dropped before its first poll.
    fn end(
        mut self,
        verdict: Verdict,
        stored: &Stored,
    ) -> impl Future<Output = Result<Outcome, Interrupted<S>>> + use<S> {
        if let Some(claim) = &mut self.claim {
            claim.finished(verdict, stored.result.clone(), self.call.policy.ttl);
            // The work is over, so no task that still has its context may start a step while the result is
            // recorded.
            claim.claimed.lease.end();
            if let Some(fault) = &stored.fault {
                claim.claimed.report(&Event::NOT_STORED.because(fault));
            }
        }
        self.recorded()
    }

    async fn recorded(self) -> Result<Outcome, Interrupted<S>> {
        let (call, Some(mut claim)) = (self.call, self.claim) else { return Ok(Outcome::Unprotected) };
        match call.in_span(pin!(claim.record())).await {
            Recorded::Kept(outcome) => Ok(outcome),
            Recorded::Superseded(replay) => Err(Interrupted::Replay(Replayed::new(call, replay))),
            Recorded::Lost(error) => Err(Interrupted::Refused(error)),
        }
    }

    /// The work failed and has no result: releases the key for the next attempt. `retry_after` is the delay
    /// until the next attempt is due. With `None`, the operation's [`retry_after`](Operation::retry_after)
    /// sets the delay. Returns the delay.
    ///
    /// If the store fails, the release continues in the background.
    ///
    /// # Cancellation
    ///
    /// Dropping the future, even before its first poll, changes nothing: the key is released in the
    /// background.
    pub fn fail(mut self, retry_after: Option<Duration>) -> impl Future<Output = Duration> + use<S> {
        let mut delay = Duration::ZERO;
        if let Some(claim) = &mut self.claim {
            delay = retry_after.unwrap_or_else(|| claim.delay_by_policy());
            claim.not_recorded(Some(delay), false);
        }
        async move {
            // Moves the whole attempt into the future, so that `drain` waits until the release has ended.
            let mut attempt = self;
            if let Some(claim) = &mut attempt.claim {
                claim.release().await;
            }
            delay
        }
    }

    /// The work was not done, and the caller may ask for it again in another form, such as a corrected
    /// request. Deletes the record with its fingerprint and its count of attempts.
    ///
    /// # Errors
    ///
    /// As [`complete`](Self::complete).
    pub fn forget(mut self) -> impl Future<Output = Result<(), Interrupted<S>>> + use<S> {
        if let Some(claim) = &mut self.claim {
            claim.forgotten();
        }
        let recorded = self.recorded();
        async move { recorded.await.map(drop) }
    }

    /// The work began and did not end. This counts as a crash, as dropping the attempt does. Returns when the
    /// key is released, or when the release continues in the background.
    pub async fn abandon(self) {
        if let Some(mut claim) = self.claim {
            claim.release().await;
        }
    }

    /// The work did not begin: releases the key in the background, as if the call had not been made.
    pub fn give_back(self) {
        if let Some(mut claim) = self.claim {
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

/// Renews the lease of a claim until the lease is lost or the call has ended.
async fn renew(claim: Arc<dyn AnyClaim>) {
    select(pin!(renewed_until_lost(claim.clone())), pin!(claim.held().lease.ended())).await;
}
