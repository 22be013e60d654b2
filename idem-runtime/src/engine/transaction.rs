//! A call whose claim, effects and result are committed together, in the caller's transaction.
//!
//! Owns the order of actions in the caller's transaction. There is no lease to renew and no work in the
//! background, because what is not committed did not happen.

use std::future::pending;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use crate::engine::Prepared;
use crate::engine::body::context::{Context, surroundings};
use crate::engine::body::{Ended, drive, unguarded};
use crate::engine::prepare::Call;
use crate::engine::record::attempt::not_stored;
use crate::engine::record::codec::Codec;
#[cfg(feature = "metrics")]
use crate::engine::report;
use crate::engine::report::{CallEnd, CallEvent, Event, Outcome};
use crate::engine::retry::backoff;
use crate::error::{Error, NotStored, StoreError, StoreErrorKind};
use idem_core::protocol::{
    ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, Replay, StoredResult, Tombstone, Verdict,
};
use idem_core::transaction::{Carries, RecordsIn, Taken, Taking};

/// One call in the caller's transaction. `P` is the caller's argument, and `C` is the connection inside it.
pub struct InTransaction<'t, R, T, E, S: RecordsIn<C>, C, P> {
    codec: Codec<R, T, E>,
    carrier: &'t mut P,
    connection: fn(&mut P) -> &mut C,
    /// `None` if the body runs without any guard.
    claim: Option<ClaimInTransaction<S>>,
    /// The savepoint, if `drop` must undo what was written after it.
    mark: Option<S::Mark>,
}

struct ClaimInTransaction<S> {
    call: Arc<Call<S>>,
    owner: Owner,
    taken: Taken,
    #[cfg(feature = "metrics")]
    begin: Instant,
}

/// Polls the body of a call.
pub struct Running {
    guarded: Option<(Context, tracing::Span)>,
}

/// Takes the key in the caller's transaction. If `call` is `None`, the body runs without any guard.
///
/// # Errors
///
/// The result of the call if its body does not run.
pub(crate) async fn enter<'t, R, T, E, S, C, P, V>(
    call: Option<Prepared<S>>,
    codec: Codec<R, T, E>,
    carrier: &'t mut P,
) -> Result<InTransaction<'t, R, T, E, S, C, P>, R>
where
    S: RecordsIn<C>,
    P: Carries<S, V, Connection = C>,
{
    let mut entered = InTransaction { codec, carrier, connection: P::connection, claim: None, mark: None };
    let Some(call) = call else { return Ok(entered) };
    let call =
        call.map_err(|error| *error).and_then(|call| allowed(call, codec.is_paced(), entered.connection()));
    let call = call.map_err(|error| codec.refusal(error))?;
    let owner = Owner::random();
    let span = call.span.clone();
    let taken = match take(&call, owner, entered.connection()).instrument(span).await {
        Ok(Ok(taken)) => taken,
        Ok(Err(replay)) => return Err(codec.replayed(&call, &replay)),
        Err(error) => return Err(codec.refusal(error)),
    };
    match S::mark(entered.connection()).await {
        Ok(mark) => entered.mark = Some(mark),
        Err(error) => return Err(codec.refusal(call.store_failed(error))),
    }
    call.span.record("idem.attempt", taken.grant.attempt);
    call.report(&Event::CLAIMED, taken.grant.attempt);
    entered.claim = Some(ClaimInTransaction {
        call,
        owner,
        taken,
        #[cfg(feature = "metrics")]
        begin: Instant::now(),
    });
    Ok(entered)
}

/// Makes the checks that only calls in a transaction need.
fn allowed<S: RecordsIn<C>, C>(
    call: Arc<Call<S>>,
    is_paced: bool,
    connection: &mut C,
) -> Result<Arc<Call<S>>, Error> {
    let policy = &call.policy;
    let faults = [
        (
            policy.wait > call.lease && call.deadline.is_none(),
            "in a transaction, `wait` must not be longer than the lease",
        ),
        (
            policy.recovers,
            "a transaction that is not committed leaves nothing to recover, so `recover` cannot go with it",
        ),
        (
            policy.fail_open || policy.on_crash == OnCrash::InDoubt || policy.max_attempts.is_some(),
            "a transaction that is rolled back leaves no trace, so neither `fail_open` nor `on_crash = \"in_doubt\"` \
             nor `max_attempts` can go with it",
        ),
        (
            policy.timeout.is_some() || policy.retry_after.is_some() || is_paced,
            "none of `timeout`, `retry_after` and `record_if` can go with a transaction: a claim that is rolled back \
             leaves no trace; limit the time of the transaction itself",
        ),
        (
            !S::is_open(connection),
            "no transaction is open on the connection: begin one with the driver's own `begin` and hand it over",
        ),
    ];
    match faults.iter().find(|(is_fault, _)| *is_fault) {
        Some((_, fault)) => Err(call.refuse(Error::configuration(call.key.scope().as_str(), *fault))),
        None => Ok(call),
    }
}

/// Takes the key, and waits for it if the policy says so.
async fn take<S: RecordsIn<C>, C>(
    call: &Call<S>,
    owner: Owner,
    connection: &mut C,
) -> Result<Result<Taken, Replay>, Error> {
    let request = call.claim(owner, call.lease);
    let begin = Instant::now();
    let mut pauses = backoff().build();
    loop {
        let taking = call.store.take(connection, &call.key, &request).await;
        let refusal = match taking.map_err(|error| call.store_failed(error))? {
            Taking::Taken(taken) => return Ok(Ok(*taken)),
            Taking::Refused(ClaimAnswer::Replay(replay)) => return Ok(Err(replay)),
            Taking::Refused(refusal) => refusal,
        };
        let remaining = call.policy.wait.saturating_sub(begin.elapsed());
        let waits = matches!(refusal, ClaimAnswer::Busy { .. } | ClaimAnswer::RetryAt { .. });
        if !waits || remaining.is_zero() {
            return Err(call.refusal(&refusal));
        }
        sleep(pauses.next().unwrap_or(Duration::from_millis(100)).min(remaining)).await;
    }
}

impl<R, T, E, S: RecordsIn<C>, C, P> InTransaction<'_, R, T, E, S, C, P> {
    fn connection(&mut self) -> &mut C {
        (self.connection)(self.carrier)
    }

    /// The value from which the body gets its transaction.
    pub fn carrier(&mut self) -> &mut P {
        self.carrier
    }

    /// Returns the value that polls the body.
    pub fn running(&self) -> Running {
        let guarded = self.claim.as_ref().map(|claim| {
            let (call, grant) = (&claim.call, claim.taken.grant);
            // The engine refuses steps of the body. What is not committed did not happen, so no later run
            // could continue after a step.
            let context = Context::unclaimed(call.clone(), Some(grant));
            (context, call.span.clone())
        });
        Running { guarded }
    }

    /// Records the body's result, or undoes what the body wrote.
    pub fn leave(mut self, ended: Ended<R>) -> Pin<Box<impl Future<Output = R>>> {
        Box::pin(async move {
            match ended {
                Ended::Returned(result) => self.finish(result).await,
                Ended::Panicked(payload) => {
                    self.undo().await;
                    resume_unwind(payload)
                }
                // Cannot happen, because no other call gets the key before the transaction ends, and the
                // option `timeout` is not allowed with a transaction.
                Ended::LeaseLost | Ended::TimedOut(_) => {
                    let interrupted = StoreError::unavailable("the body was interrupted");
                    self.unrecorded(interrupted).await
                }
            }
        })
    }

    async fn finish(&mut self, result: R) -> R {
        let Some(claim) = self.claim.take() else { return result };
        let (call, grant) = (&claim.call, claim.taken.grant);
        let (attempt, recovered) = (grant.attempt, grant.recovered);
        #[cfg(feature = "metrics")]
        report::body_ran(&call.key, claim.begin);
        let encoded = self.codec.encode(call, &result);
        if let Some((verdict, stored)) = &encoded {
            self.codec.check(call, attempt, *verdict, stored);
        }
        call.tell(&CallEvent::Outcome(Outcome::Executed { attempt, recovered, not_stored: None }));
        let Some((verdict, stored)) = encoded else {
            self.undo().await;
            call.tell(&CallEvent::Ended(&CallEnd::Released { attempt, retry_after: Duration::ZERO }));
            call.report(&Event::RELEASED, attempt);
            return result;
        };
        match self.record(&claim, verdict, stored.result).await {
            Ok(not_stored) => {
                call.tell(&CallEvent::Outcome(Outcome::Executed { attempt, recovered, not_stored }));
                // A tombstone was reported when it was made.
                if not_stored.is_none() {
                    call.report(&Event::COMPLETED, attempt);
                }
                result
            }
            Err(error) => {
                call.report(&Event::UNRECORDED.by(&error), attempt);
                self.claim = Some(claim);
                self.unrecorded(error).await
            }
        }
    }

    /// Rolls back to the savepoint. If that fails, makes it impossible to commit the transaction.
    async fn undo(&mut self) {
        if let Some(mark) = &mut self.mark {
            let undone = S::undo((self.connection)(self.carrier), mark).await;
            // Cleared only now, because `drop` must still undo the writes if this future is dropped during
            // the rollback.
            self.mark = None;
            if undone.is_err() {
                S::spoil(self.connection()).await;
            }
        }
    }

    /// Records the result. Returns why a duplicate does not get the result; `None` if a duplicate gets it.
    async fn record(
        &mut self,
        claim: &ClaimInTransaction<S>,
        verdict: Verdict,
        result: StoredResult,
    ) -> Result<Option<NotStored>, StoreError> {
        if verdict == Verdict::Failed {
            claim.call.tell(&CallEvent::Ended(&CallEnd::Terminal));
            // A terminal error is recorded, and the writes of the body are undone.
            self.undo().await;
            self.mark = Some(S::mark(self.connection()).await?);
        }
        let mut request =
            Complete::new(claim.owner, claim.taken.grant.fence, verdict, result, claim.call.policy.ttl);
        let key = &claim.call.key;
        let mut answer = claim.call.store.record(self.connection(), key, &claim.taken, &request).await;
        if let Err(error) = &answer
            && error.kind() == StoreErrorKind::TooLarge
        {
            claim.call.report(&Event::NOT_STORED.because(error), claim.taken.grant.attempt);
            request.result = StoredResult::Tombstone(Tombstone::TooLarge);
            answer = claim.call.store.record(self.connection(), key, &claim.taken, &request).await;
        }
        if answer? == CompleteAnswer::Lost {
            return Err(StoreError::unavailable(
                "another call with this key was recorded meanwhile, or the body ended the transaction itself",
            ));
        }
        if let Some(mark) = &mut self.mark {
            S::keep((self.connection)(self.carrier), mark).await?;
            self.mark = None;
        }
        Ok(not_stored(&request.result))
    }

    /// Undoes the writes of the call, and makes it impossible to commit the caller's transaction.
    async fn unrecorded(&mut self, source: StoreError) -> R {
        self.undo().await;
        S::spoil(self.connection()).await;
        self.codec.refusal(match &self.claim {
            Some(claim) => claim.call.refuse(Error::NotRecorded { call: claim.call.id(), source }),
            None => Error::configuration("(no key)", source.to_string()),
        })
    }
}

impl<R, T, E, S: RecordsIn<C>, C, P> Drop for InTransaction<'_, R, T, E, S, C, P> {
    /// If the call is dropped before its end, nothing that it wrote stays, whatever the caller does with the
    /// transaction.
    fn drop(&mut self) {
        if let Some(mark) = &mut self.mark {
            S::undo_first((self.connection)(self.carrier), mark);
        }
    }
}

impl Running {
    /// Polls the body to its end.
    pub async fn drive<B: Future>(&self, body: Pin<&mut Option<B>>) -> Ended<B::Output> {
        let Some((context, span)) = &self.guarded else {
            let ended = unguarded(None, surroundings().observer.as_deref(), body).await;
            return ended.map_or_else(Ended::TimedOut, Ended::Returned);
        };
        drive(Some(context), span, None, pin!(pending()), body).await
    }
}
