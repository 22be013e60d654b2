//! One attempt, from its grant to its end. It ends recorded, released, abandoned or lost.
//!
//! Owns the rule that no claim is left behind: if the call ends before its claim, dropping the attempt starts
//! the work that ends the claim. It also owns the request that records a result while its caller waits, and
//! the tombstone of a result that is too large for the store.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::engine::body::steps::Log;
use crate::engine::claim::claimed::{AnyClaim as _, Claimed, Held};
use crate::engine::claim::waiters::Waiters;
use crate::engine::lease::{Lease, Sent};
use crate::engine::prepare::{Call, Details};
use crate::engine::record::background::Work;
use crate::engine::record::codec::Codec;
#[cfg(feature = "metrics")]
use crate::engine::report;
use crate::engine::report::{CallEnd, CallEvent, Event, Outcome};
use crate::engine::retry::{answered, retry_until};
use crate::error::{Error, Loss, NotStored, StoreError, StoreErrorKind};
use idem_core::Store;
use idem_core::protocol::{
    Complete, CompleteAnswer, Grant, OnCrash, Owner, Record, ReleaseCause, Replay, State, StoredResult,
    Tombstone, Verdict,
};

pub(crate) struct Attempt<S: Store> {
    pub(crate) claimed: Arc<Claimed<S>>,
    #[cfg(feature = "metrics")]
    begin: Instant,
    phase: Phase,
}

/// What must still happen, even if the attempt is dropped.
enum Phase {
    /// Release the claim for this cause, without a result. The key is due after this time.
    Releasing(ReleaseCause, Duration),
    /// The body is done; this result must be recorded.
    Recording(Complete),
    Over,
}

/// What became of a result.
pub(crate) enum Recorded {
    /// The caller gets its own result: the store has recorded it, or has no other result of this call.
    Kept(Outcome),
    /// The recorded result is that of another attempt.
    Superseded(Replay),
    /// The claim is lost: another attempt has the key, or the engine could not read the record.
    Lost(Error),
}

impl<S: Store> Attempt<S> {
    pub(crate) fn new(call: &Arc<Call<S>>, owner: Owner, grant: Grant, sent: Sent) -> Self {
        call.span.record("idem.attempt", grant.attempt);
        let held = Held {
            owner,
            grant,
            lease: Lease::new(call.lease, call.policy.lease, sent),
            // A first attempt finds no recorded steps, because an attempt after an earlier run of the body is
            // at least the second.
            log: Log::new(grant.attempt == 1, call.policy.recovers && grant.recovered),
        };
        Self {
            claimed: Arc::new(Claimed { call: call.clone(), held }),
            #[cfg(feature = "metrics")]
            begin: Instant::now(),
            phase: Phase::Releasing(ReleaseCause::Unused, Duration::ZERO),
        }
    }

    fn call(&self) -> &Details {
        &self.claimed.call
    }

    /// Tells the observer that the body ran.
    fn executed(&self, not_stored: Option<NotStored>) -> Outcome {
        let Grant { attempt, recovered, .. } = self.claimed.grant;
        let executed = Outcome::Executed { attempt, recovered, not_stored };
        self.call().tell(&CallEvent::Outcome(executed));
        executed
    }

    /// From now on the body may have had its effect.
    pub(crate) fn start(&mut self) {
        self.phase = Phase::Releasing(ReleaseCause::Abandoned, Duration::ZERO);
    }

    /// The body was not started after all.
    pub(crate) fn unused(&mut self) {
        self.phase = Phase::Releasing(ReleaseCause::Unused, Duration::ZERO);
    }

    /// Whether the body's result must be recorded. If so, the attempt holds the result from now on.
    pub(crate) fn is_finished<R, T, E>(&mut self, codec: &Codec<R, T, E>, result: &R) -> bool {
        let log = &self.claimed.log;
        // If a cause is set, no body has run. Either `recover` failed, or it found nothing and no attempts
        // are left, or the store failed before the body began. The set cause counts, and not this result.
        if log.cause().is_some() {
            return false;
        }
        let Some((verdict, stored)) = codec.encode(self.call(), result) else {
            // `record_if` refuses the value that `recover` returned. No body has run, so the next call must
            // run `recover` again.
            if codec.is_value(result) && log.is_recovered() {
                log.decide(ReleaseCause::Unused);
            }
            return false;
        };
        self.finished(verdict, stored.result.clone(), self.call().policy.ttl);
        codec.check(self.call(), self.claimed.grant.attempt, verdict, &stored);
        true
    }

    /// The pause that the operation's policy sets between this attempt and the next attempt. It applies
    /// unless the caller, or the operation's function for `retry_after`, sets the pause.
    pub(crate) fn delay_by_policy(&self) -> Duration {
        let retry_after = self.call().policy.retry_after;
        retry_after.map(|pace| pace.delay(self.claimed.grant.attempt)).unwrap_or_default()
    }

    /// The body returned a value or an error that is not recorded. From now on the claim is released even if
    /// the call is dropped.
    pub(crate) fn not_recorded(&mut self, retry_after: Option<Duration>, is_value: bool) {
        let attempt = self.claimed.grant.attempt;
        let retry_after = retry_after.unwrap_or_else(|| self.delay_by_policy());
        let cause = self.claimed.log.cause().unwrap_or(ReleaseCause::Failed);
        self.phase = Phase::Releasing(cause, retry_after);
        let released = CallEnd::Released { attempt, retry_after };
        let ending = match (cause, self.claimed.log.refused()) {
            // No later call runs `recover` again, so an operator must decide.
            (ReleaseCause::Doubtful, _) if self.call().policy.on_crash != OnCrash::InDoubt => {
                CallEnd::Refused(Error::InDoubt { call: self.call().id() })
            }
            (ReleaseCause::NothingHappened, _) => CallEnd::Refused(Error::Exhausted {
                call: self.call().id(),
                attempts: attempt.saturating_sub(1),
            }),
            (ReleaseCause::Failed | ReleaseCause::Unused, Some(refused)) => CallEnd::Refused(refused),
            _ => released,
        };
        let has_run = is_value || !matches!(cause, ReleaseCause::Unused | ReleaseCause::NothingHappened);
        #[cfg(feature = "metrics")]
        if has_run {
            report::body_ran(&self.call().key, self.begin);
        }
        if is_value {
            self.call().tell(&CallEvent::Outcome(Outcome::NotKept { attempt }));
        } else if has_run {
            self.executed(None);
        }
        self.call().tell(&CallEvent::Ended(&ending));
    }

    pub(crate) async fn time_out(&mut self, after: Duration) {
        self.claimed.report(&Event::TIMED_OUT.after(after));
        self.release().await;
    }

    /// Releases the claim of a body that is done without a result, or did not end (it panicked, timed out or
    /// was dropped).
    pub(crate) async fn release(&mut self) {
        let Phase::Releasing(cause, retry_after) = self.phase else { return };
        // Work outside the body learns of the end now, without waiting for the store.
        self.claimed.lease.end();
        // The time is limited, because the steps are recorded before the release, and recording them may take
        // the rest of the lease.
        let patience = self.call().policy.store_timeout;
        let released = answered("the release", patience, self.claimed.release(cause, retry_after, false));
        if let Err(error) = released.await {
            // The caller does not wait longer; the release is retried in the background.
            self.claimed.report(&Event::RELEASE_FAILED.by(&error));
            self.claimed.release_behind(cause, retry_after);
        }
        self.phase = Phase::Over;
    }

    /// The body is done with this result, which [`record`](Self::record) records. From now on it is recorded
    /// even if the call is dropped or an observer panics.
    pub(crate) fn finished(&mut self, verdict: Verdict, result: StoredResult, ttl: Duration) {
        let (owner, fence) = (self.claimed.owner, self.claimed.grant.fence);
        self.phase = Phase::Recording(Complete::new(owner, fence, verdict, result, ttl));
        #[cfg(feature = "metrics")]
        report::body_ran(&self.call().key, self.begin);
        self.executed(None);
        if verdict == Verdict::Failed {
            self.call().tell(&CallEvent::Ended(&CallEnd::Terminal));
        }
    }

    /// The work was not done. Its record is deleted with its fingerprint, by recording a result that expires
    /// at once.
    pub(crate) fn forgotten(&mut self) {
        let result = StoredResult::Tombstone(Tombstone::TooLarge);
        self.finished(Verdict::Completed, result, Duration::ZERO);
    }

    /// Records the result with which the body [`finished`](Self::finished).
    pub(crate) async fn record(&mut self) -> Recorded {
        let patience = self.call().policy.store_timeout;
        let (completed, not_stored) = match &mut self.phase {
            Phase::Recording(request) => {
                let answer = self.claimed.complete(request, || Instant::now() + patience).await;
                (answer, not_stored(&request.result))
            }
            _ => (Ok(CompleteAnswer::Lost), None),
        };
        match completed {
            Ok(CompleteAnswer::Done) => {
                // A tombstone was reported when it was made.
                if not_stored.is_none() {
                    self.claimed.report(&Event::COMPLETED);
                }
                self.phase = Phase::Over;
                Recorded::Kept(self.executed(not_stored))
            }
            Ok(_) => {
                // The phase ends only after the record is read, so that the result is not lost if the call is
                // dropped during the reading.
                let superseded = Box::pin(self.superseded()).await;
                if let Phase::Recording(request) = std::mem::replace(&mut self.phase, Phase::Over) {
                    self.claimed.report_unrecorded(&request, None);
                }
                superseded
            }
            Err(error) => self.record_behind(&error),
        }
    }

    /// What the caller gets if its result cannot be recorded, because the claim is lost.
    async fn superseded(&self) -> Recorded {
        match self.claimed.look().await {
            Ok(Some(record)) => match self.replay(&record) {
                // `Exhausted` is not a result of another attempt.
                Some(replay) if replay.result == StoredResult::Tombstone(Tombstone::Exhausted) => {
                    self.unrecorded()
                }
                Some(replay) => Recorded::Superseded(replay),
                // Another attempt has the key and may record a result.
                None if record.state == State::InFlight && record.fence != self.claimed.grant.fence => {
                    Recorded::Lost(self.lost(Loss::TakenOver))
                }
                // The record is released or in doubt, or has a result for other arguments. So there is no
                // result to return.
                None => self.unrecorded(),
            },
            Ok(None) => self.unrecorded(),
            Err(_) => Recorded::Lost(self.lost(Loss::Unknown)),
        }
    }

    /// The result of another attempt of this call. A result under another fingerprint does not count, because
    /// the record may have been deleted and made again by a call with other arguments.
    fn replay(&self, record: &Record) -> Option<Replay> {
        let is_other =
            matches!((record.fingerprint, self.call().fingerprint), (Some(old), Some(own)) if old != own);
        if is_other { None } else { record.replay() }
    }

    /// The caller gets its value; recording continues in the background.
    fn record_behind(&mut self, error: &StoreError) -> Recorded {
        if let Phase::Recording(request) = std::mem::replace(&mut self.phase, Phase::Over) {
            self.claimed.record_late(request, error);
        }
        self.unrecorded()
    }

    /// The result is not recorded, and there is no other result to return.
    fn unrecorded(&self) -> Recorded {
        let unrecorded = Outcome::Unrecorded { attempt: self.claimed.grant.attempt };
        self.call().tell(&CallEvent::Outcome(unrecorded));
        Recorded::Kept(unrecorded)
    }

    fn lost(&self, loss: Loss) -> Error {
        self.claimed.report(&Event::LEASE_LOST);
        self.call().refuse(Error::LeaseLost { call: self.call().id(), loss })
    }

    /// The lease was lost while the body ran. Returns the result of the call that took over, if there is one.
    pub(crate) async fn after_loss(&mut self) -> Result<Replay, Error> {
        self.phase = Phase::Over;
        Err(self.lost(match self.claimed.look().await {
            Ok(Some(record)) => match (self.replay(&record), record.state) {
                (Some(replay), _) => return Ok(replay),
                (None, State::InDoubt) => {
                    self.claimed.report(&Event::LEASE_LOST);
                    return Err(self.call().refuse(Error::InDoubt { call: self.call().id() }));
                }
                (None, State::InFlight) => Loss::TakenOver,
                (None, _) => Loss::Released,
            },
            Ok(None) => Loss::Forgotten,
            Err(_) => Loss::Unknown,
        }))
    }
}

impl<S: Store> Claimed<S> {
    /// Records a result, and retries until `end`.
    pub(crate) async fn complete(
        &self,
        request: &mut Complete,
        end: impl Fn() -> Instant,
    ) -> Result<CompleteAnswer, StoreError> {
        loop {
            let (call, request_now) = (&self.call, &*request);
            let ask = || async move {
                #[cfg(feature = "metrics")]
                let begin = Instant::now();
                // Boxed, so that the future of a call keeps no room for the request while its body runs.
                let request = Box::pin(call.store.apply(&call.key, request_now.clone().into()));
                let answer = request.await.and_then(CompleteAnswer::try_from);
                #[cfg(feature = "metrics")]
                report::store_answered::<S>(&call.key, "complete", begin, answer.is_ok());
                answer
            };
            let answer = retry_until("the result", &end, self.call.policy.store_timeout, ask).await;
            let tombstone = StoredResult::Tombstone(Tombstone::TooLarge);
            match &answer {
                Err(error) if error.kind() == StoreErrorKind::TooLarge && request.result != tombstone => {
                    self.report(&Event::NOT_STORED.because(error));
                    request.result = tombstone;
                    continue;
                }
                Err(_) => {}
                Ok(_) => Waiters::wake_in(&self.call.store, &self.call.key),
            }
            return answer;
        }
    }
}

/// Why a duplicate does not get this result; `None` if a duplicate gets it.
pub(crate) fn not_stored(result: &StoredResult) -> Option<NotStored> {
    match result {
        StoredResult::Value(_) => None,
        StoredResult::Tombstone(reason) => Some((*reason).into()),
    }
}

impl<S: Store> Drop for Attempt<S> {
    fn drop(&mut self) {
        let claimed = &self.claimed;
        claimed.lease.end();
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Over => {}
            Phase::Releasing(cause, retry_after) => claimed.release_behind(cause, retry_after),
            Phase::Recording(request) => {
                claimed.call.finish_behind(Work::Result, claimed.clone().complete_behind(request));
            }
        }
    }
}
