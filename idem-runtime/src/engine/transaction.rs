//! A call whose claim, effects and result are committed together, in the caller's transaction.
//!
//! Owns the order of actions in the caller's transaction. There is no lease to renew and no work in the background:
//! what is not committed did not happen.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::future::poll_fn;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::call::Prepared;
use super::claim::refused_by_store;
use super::claimed::not_stored;
use super::codec::NotEncoded;
use super::context::{CallEnd, Context, Current, Outcome};
use super::report::{Event, Stopwatch};
use super::results::{decode, encode};
use super::retry::backoff;
use super::{Call, Codec, Encoded, Ended, Failure, polled, unguarded};
use crate::error::{Error, NotStored, StoreError, StoreErrorKind};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, Replay, StoredResult, Tombstone, Verdict,
};
use idem_core::transaction::{Carries, RecordsIn, Taken, Taking};

/// One call in a transaction of the connection `C`, which `P` gives access to.
pub(crate) struct Within<'t, S: RecordsIn<C>, C, P> {
    carrier: &'t mut P,
    connection: fn(&mut P) -> &mut C,
    /// `None` if the body runs without any guard.
    taken: Option<TakenBy<S>>,
    /// The savepoint, if `drop` must undo what was written after it.
    mark: Option<S::Mark>,
}

struct TakenBy<S> {
    call: Arc<Prepared<S>>,
    owner: Owner,
    taken: Taken,
}

/// Polls the body of a call.
pub(crate) struct Running {
    guarded: Option<(Current, tracing::Span)>,
    stopwatch: Stopwatch,
}

/// What to do for a call.
pub(crate) enum Entered<W, T, E> {
    /// Run the body.
    Run(W),
    /// Return this.
    Done(Result<T, Failure<E>>),
}

/// Takes the key in the caller's transaction, or returns the result of the call.
pub(crate) async fn enter<'t, S, C, P, V, D, T, E>(
    call: Call<S>,
    unguarded: bool,
    codec: &D,
    carrier: &'t mut P,
) -> Entered<Within<'t, S, C, P>, T, E>
where
    S: RecordsIn<C>,
    P: Carries<S, V, Connection = C>,
    D: Codec<T, E>,
{
    let mut within = Within { carrier, connection: P::connection, taken: None, mark: None };
    if unguarded {
        return Entered::Run(within);
    }
    let call =
        match call.prepare().map_err(|error| *error).and_then(|call| allowed(call, within.connection())) {
            Ok(call) => call,
            Err(error) => return Entered::Done(Err(error.into())),
        };
    let owner = Owner::random();
    let span = call.span.clone();
    let taken = match take(&call, owner, within.connection()).instrument(span).await {
        Ok(Ok(taken)) => taken,
        Ok(Err(replay)) => return Entered::Done(decode(&call, codec, &replay)),
        Err(error) => return Entered::Done(Err(call.refuse(error).into())),
    };
    match S::mark(within.connection()).await {
        Ok(mark) => within.mark = Some(mark),
        Err(error) => return Entered::Done(Err(call.refuse(refused_by_store(&call, error)).into())),
    }
    call.span.record("idem.attempt", taken.grant.attempt);
    call.report(Event::Claimed, taken.grant.attempt);
    within.taken = Some(TakenBy { call, owner, taken });
    Entered::Run(within)
}

/// Makes the checks that only calls in a transaction need.
fn allowed<S: RecordsIn<C>, C>(
    call: Arc<Prepared<S>>,
    connection: &mut C,
) -> Result<Arc<Prepared<S>>, Error> {
    let refuse = |detail: &str| Err(call.refuse(Error::configuration(call.key.scope().as_str(), detail)));
    if call.policy.wait > call.policy.lease && !call.has_deadline() {
        return refuse("in a transaction, `wait` must not be longer than the lease");
    }
    if call.policy.recovers {
        return refuse(
            "a transaction that is not committed leaves nothing to recover, so `recover` cannot go with it",
        );
    }
    if call.policy.fail_open || call.policy.on_crash == OnCrash::InDoubt || call.policy.max_attempts.is_some()
    {
        return refuse(
            "a transaction that is rolled back leaves no trace, so neither `fail_open` nor \
             `on_crash = \"in_doubt\"` nor `max_attempts` can go with it",
        );
    }
    if call.policy.timeout.is_some() || call.policy.retry_after.is_some() {
        return refuse(
            "neither `timeout` nor `retry_after` can go with a transaction: a claim that is rolled back leaves no \
             trace; limit the time of the transaction itself",
        );
    }
    if !S::is_open(connection) {
        return refuse(
            "no transaction is open on the connection: begin one with the driver's own `begin` and hand it over",
        );
    }
    Ok(call)
}

/// Takes the key, and waits for it if the policy says so.
async fn take<S: RecordsIn<C>, C>(
    call: &Prepared<S>,
    owner: Owner,
    connection: &mut C,
) -> Result<Result<Taken, Replay>, Error> {
    let policy = &call.policy;
    let request = Claim::new(owner, policy.lease, policy.ttl)
        .with_fingerprint(call.fingerprint)
        .with_on_crash(policy.on_crash)
        .with_max_attempts(policy.max_attempts);
    let begin = Instant::now();
    let mut pauses = backoff().build();
    loop {
        let taking = call.store.take(connection, &call.key, &request).await;
        let refusal = match taking.map_err(|error| refused_by_store(call, error))? {
            Taking::Taken(taken) => return Ok(Ok(*taken)),
            Taking::Refused(ClaimAnswer::Replay(replay)) => return Ok(Err(replay)),
            Taking::Refused(refusal) => refusal,
        };
        let left = policy.wait.saturating_sub(begin.elapsed());
        let waits = matches!(refusal, ClaimAnswer::Busy { .. } | ClaimAnswer::RetryAt { .. });
        if !waits || left.is_zero() {
            return Err(call.refusal(&refusal));
        }
        sleep(pauses.next().unwrap_or(Duration::from_millis(100)).min(left)).await;
    }
}

impl<S: RecordsIn<C>, C, P> Within<'_, S, C, P> {
    fn connection(&mut self) -> &mut C {
        (self.connection)(self.carrier)
    }

    /// The value from which the body gets its transaction.
    pub(crate) fn carrier(&mut self) -> &mut P {
        self.carrier
    }

    /// Starts the body: returns what polls it.
    pub(crate) fn running(&self) -> Running {
        let guarded = self.taken.as_ref().map(|by| {
            let context = Context::new(by.call.key.clone(), Some(by.taken.grant), by.call.enclosing.clone());
            // It has no steps. What is not committed did not happen, so no later run could continue after one.
            (Current::new(context, None), by.call.span.clone())
        });
        Running { guarded, stopwatch: Stopwatch::start() }
    }

    /// Records the body's result, or undoes what the body wrote.
    pub(crate) async fn leave<D, T, E>(
        mut self,
        codec: &D,
        running: Running,
        ended: Ended<Result<T, E>>,
    ) -> Result<T, Failure<E>>
    where
        D: Codec<T, E>,
    {
        let result = match ended {
            Ended::Returned(result) => result,
            Ended::Panicked(payload) => {
                self.undo().await;
                resume_unwind(payload)
            }
            // Does not happen: no other call gets the key before the transaction ends, and a timeout is refused.
            Ended::LeaseLost | Ended::TimedOut(_) => return Err(self.unrecorded(interrupted()).await.into()),
        };
        let Some(by) = self.taken.take() else { return result.map_err(Failure::Body) };
        let attempt = by.taken.grant.attempt;
        running.stopwatch.body_ran(&by.call.key);
        let encoded = encode(&by.call, attempt, codec, &result);
        let recovered = by.taken.grant.recovered;
        by.call.observe(Outcome::Executed { attempt, recovered, not_stored: None });
        let Some(Encoded { verdict, stored }) = encoded else {
            self.undo().await;
            by.call.end(CallEnd::Released { attempt, retry_after: Duration::ZERO });
            by.call.report(Event::Released, attempt);
            return result.map_err(Failure::Body);
        };
        let recorded = self.record(&by, verdict, stored.result).await;
        match recorded {
            Ok(not_stored) => {
                by.call.observe(Outcome::Executed { attempt, recovered, not_stored });
                // A tombstone was reported when it was made.
                if not_stored.is_none() {
                    by.call.report(Event::Completed, attempt);
                }
                result.map_err(Failure::Body)
            }
            Err(error) => {
                by.call.report(Event::Unrecorded(Some(&error)), attempt);
                self.taken = Some(by);
                Err(self.unrecorded(error).await.into())
            }
        }
    }

    /// Rolls back to the savepoint. If that fails, makes it impossible to commit the transaction.
    async fn undo(&mut self) {
        if let Some(mark) = &mut self.mark {
            let undone = S::undo((self.connection)(self.carrier), mark).await;
            // Not earlier: if this future is dropped during the rollback, `drop` must still undo the writes.
            self.mark = None;
            if undone.is_err() {
                S::spoil(self.connection()).await;
            }
        }
    }

    /// Records the result. Returns why a duplicate does not get it, if it does not.
    async fn record(
        &mut self,
        by: &TakenBy<S>,
        verdict: Verdict,
        result: StoredResult,
    ) -> Result<Option<NotStored>, StoreError> {
        if verdict == Verdict::Failed {
            by.call.end(CallEnd::Terminal);
            // A terminal error is recorded, and the writes of the body are undone.
            self.undo().await;
            self.mark = Some(S::mark(self.connection()).await?);
        }
        let mut request = Complete::new(by.owner, by.taken.grant.fence, verdict, result, by.call.policy.ttl);
        let key = &by.call.key;
        let mut answer = by.call.store.record(self.connection(), key, &by.taken, &request).await;
        if let Err(error) = &answer
            && error.kind() == StoreErrorKind::TooLarge
        {
            by.call.report(Event::NotStored(&NotEncoded::Refused(error.to_string())), by.taken.grant.attempt);
            request.result = StoredResult::Tombstone(Tombstone::TooLarge);
            answer = by.call.store.record(self.connection(), key, &by.taken, &request).await;
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
    async fn unrecorded(&mut self, source: StoreError) -> Error {
        if let Some(mark) = &mut self.mark {
            let _ = S::undo((self.connection)(self.carrier), mark).await;
            self.mark = None;
        }
        S::spoil(self.connection()).await;
        match &self.taken {
            Some(by) => by.call.refuse(Error::NotRecorded { call: by.call.id(), source }),
            None => Error::configuration("(no key)", source.to_string()),
        }
    }
}

fn interrupted() -> StoreError {
    StoreError::unavailable("the body was interrupted")
}

impl<S: RecordsIn<C>, C, P> Drop for Within<'_, S, C, P> {
    /// The call was dropped before its end. Nothing it wrote stays, whatever the caller does with the transaction.
    fn drop(&mut self) {
        if let Some(mark) = &mut self.mark {
            S::undo_first((self.connection)(self.carrier), mark);
        }
    }
}

impl Running {
    /// Polls the body to its end.
    pub(crate) async fn drive<T, E, B>(&self, mut body: Pin<&mut Option<B>>) -> Ended<Result<T, E>>
    where
        B: Future<Output = Result<T, E>>,
    {
        let Some((current, span)) = &self.guarded else {
            return Ended::Returned(unguarded(polled(body)).await);
        };
        poll_fn(|cx| {
            let _entered = span.enter();
            let Some(running) = body.as_mut().as_pin_mut() else { return Poll::Ready(Ended::LeaseLost) };
            match catch_unwind(AssertUnwindSafe(|| current.enter(|| running.poll(cx)))) {
                Ok(Poll::Ready(result)) => Poll::Ready(Ended::Returned(result)),
                Ok(Poll::Pending) => Poll::Pending,
                Err(payload) => Poll::Ready(Ended::Panicked(payload)),
            }
        })
        .await
    }
}
