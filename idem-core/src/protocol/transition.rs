//! The transitions. Each takes the stored record, the request and the store's time, and returns what to write
//! and what to answer.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, OnCrash, Owner, Record, RecordStep,
    RecordStepAnswer, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Replay, State, StoredResult,
    Timestamp, Tombstone, Verdict,
};

/// What a transition does: the record to write, if it changes, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transition<A> {
    /// The new record; `None` leaves everything as it is.
    pub write: Option<Record>,
    /// The answer.
    pub answer: A,
}

impl<A> Transition<A> {
    pub(super) const fn keep(answer: A) -> Self {
        Self { write: None, answer }
    }

    pub(super) const fn put(record: Record, answer: A) -> Self {
        Self { write: Some(record), answer }
    }
}

/// Whether a record is live. Past its `expires_at` a record counts as absent, even if the store has not
/// deleted it yet.
#[must_use]
pub fn is_live(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|end| now < end)
}

/// Whether a record must never expire. If it expired, a body that may start at most once could start again.
#[must_use]
pub const fn is_endless(record: &Record) -> bool {
    match record.state {
        State::InDoubt => true,
        State::InFlight => matches!(record.on_crash, OnCrash::InDoubt),
        State::Completed | State::Failed | State::Released => false,
    }
}

/// Claims a key.
///
/// `record` is what the store holds, expired or not. Every new fence exceeds `floor`. If a store keeps the
/// highest fence of the records that it deleted, it passes this fence as `floor`. So fences rise even if its
/// clock steps back. Any other store passes [`Fence::default`].
#[must_use]
pub fn claim(
    record: Option<&Record>,
    floor: Fence,
    request: &Claim,
    now: Timestamp,
) -> Transition<ClaimAnswer> {
    let old_fence = record.map_or(floor, |record| record.fence.max(floor));
    let Some(record) = record.filter(|record| is_live(record, now)) else {
        return grant(None, old_fence, request, now, false);
    };
    if is_mismatch(record, request) {
        return Transition::keep(ClaimAnswer::Mismatch);
    }
    let is_own = record.owner == request.owner;
    match record.state {
        State::Completed | State::Failed => Transition::keep(replay(record)),
        State::InFlight if is_own => Transition::keep(ClaimAnswer::Granted(granted(record, request, now))),
        // This is a late copy of a claim that already got its answer. Nobody waits for a second answer, so
        // nobody would run the body.
        State::Released if is_own => Transition::keep(not_due(record, now)),
        State::InDoubt if is_own || !may_settle(request) => Transition::keep(ClaimAnswer::InDoubt),
        // If the key is in doubt and the lease is running, the worker has renewed the lease after the doubt
        // began. The worker may be in the middle of the effect.
        State::InFlight | State::InDoubt if now < record.lease_until => {
            Transition::keep(ClaimAnswer::Busy { retry_after: record.lease_until.since(now) })
        }
        State::Released if !record.recovered && attempts_are_over(record, request) => {
            exhaust(record, request, now)
        }
        State::Released if now < record.retry_at => Transition::keep(not_due(record, now)),
        State::Released if !record.recovered => grant(Some(record), old_fence, request, now, false),
        State::InFlight | State::Released | State::InDoubt => take_over(record, old_fence, request, now),
    }
}

/// The answer to a claim on a live record that has a result; `None` if the record has no result. The answer
/// does not depend on the time, so a store that has already read the record needs no further request to its
/// server.
#[must_use]
pub fn recorded_answer(record: &Record, request: &Claim) -> Option<ClaimAnswer> {
    match record.state {
        State::Completed | State::Failed if is_mismatch(record, request) => Some(ClaimAnswer::Mismatch),
        State::Completed | State::Failed => Some(replay(record)),
        State::InFlight | State::Released | State::InDoubt => None,
    }
}

fn is_mismatch(record: &Record, request: &Claim) -> bool {
    matches!((record.fingerprint, request.fingerprint), (Some(recorded), Some(asked)) if recorded != asked)
}

/// Claims a key whose last run began and did not report an outcome.
fn take_over(record: &Record, old_fence: Fence, request: &Claim, now: Timestamp) -> Transition<ClaimAnswer> {
    let is_cautious = record.on_crash == OnCrash::InDoubt || request.on_crash == OnCrash::InDoubt;
    if is_cautious && !may_settle(request) {
        return Transition::put(in_doubt(record, now), ClaimAnswer::InDoubt);
    }
    if attempts_are_over(record, request) && !request.recovers {
        return exhaust(record, request, now);
    }
    grant(Some(record), old_fence, request, now, true)
}

fn attempts_are_over(record: &Record, request: &Claim) -> bool {
    request.max_attempts.is_some_and(|most| record.attempt >= most.get())
}

/// Whether this claim may settle a doubt. A claim under [`OnCrash::Rerun`] may not, because if its grant were
/// released unused, the record would have a lapsed lease and would no longer be in doubt.
fn may_settle(request: &Claim) -> bool {
    request.recovers && request.on_crash == OnCrash::InDoubt
}

/// The grant that the holder of a record in flight gets for this claim.
///
/// A store whose server decides the claim makes its answer with this function, from the record that the
/// server wrote.
#[must_use]
pub fn granted(record: &Record, request: &Claim, now: Timestamp) -> Grant {
    Grant {
        fence: record.fence,
        attempt: record.attempt,
        recovered: record.recovered,
        recover_only: record.recovered
            && request.max_attempts.is_some_and(|most| record.attempt > most.get()),
        lease_left: record.lease_until.since(now),
    }
}

fn not_due(record: &Record, now: Timestamp) -> ClaimAnswer {
    ClaimAnswer::RetryAt { retry_after: record.retry_at.since(now) }
}

/// The number of the attempt that follows attempt `attempt`. A grant past the limit starts no body and is not
/// counted, so the number of every such grant is the limit plus one. If `attempt` is higher already, because
/// the limit was lowered, the number stays.
fn next_attempt(attempt: u32, max_attempts: Option<NonZeroU32>) -> u32 {
    let past_the_limit = max_attempts.map_or(u32::MAX, |most| most.get().saturating_add(1));
    attempt.saturating_add(1).min(past_the_limit.max(attempt))
}

fn grant(
    record: Option<&Record>,
    old_fence: Fence,
    request: &Claim,
    now: Timestamp,
    recovered: bool,
) -> Transition<ClaimAnswer> {
    let fence = Fence::new(old_fence.get().saturating_add(1).max(now.as_micros()));
    let attempt = next_attempt(record.map_or(0, |record| record.attempt), request.max_attempts);
    let lease_until = now.after(request.lease);
    let new = Record {
        state: State::InFlight,
        owner: request.owner,
        fence,
        attempt,
        recovered,
        on_crash: request.on_crash,
        lease_until,
        retry_at: now,
        ttl: request.ttl,
        fingerprint: request.fingerprint.or_else(|| record.and_then(|record| record.fingerprint)),
        result: None,
        steps: record.map_or_else(Vec::new, |record| record.steps.clone()),
        created_at: record.map_or(now, |record| record.created_at),
        completed_at: None,
        expires_at: in_flight_until(request.on_crash, lease_until, request.ttl),
    };
    let answer = ClaimAnswer::Granted(granted(&new, request, now));
    Transition::put(new, answer)
}

fn in_flight_until(on_crash: OnCrash, lease_until: Timestamp, ttl: Duration) -> Option<Timestamp> {
    match on_crash {
        OnCrash::Rerun => Some(lease_until.after(ttl)),
        // If this record expired, the body could start a second time.
        OnCrash::InDoubt => None,
    }
}

impl Record {
    /// The result for a duplicate, if the record is completed or failed.
    #[must_use]
    pub fn replay(&self) -> Option<Replay> {
        let verdict = match self.state {
            State::Completed => Verdict::Completed,
            State::Failed => Verdict::Failed,
            State::InFlight | State::Released | State::InDoubt => return None,
        };
        Some(Replay {
            verdict,
            result: self.result.clone()?,
            attempt: self.attempt,
            completed_at: self.completed_at?,
            expires_at: self.expires_at,
        })
    }
}

fn replay(record: &Record) -> ClaimAnswer {
    match record.replay() {
        Some(Replay { result: StoredResult::Tombstone(Tombstone::Exhausted), attempt, .. }) => {
            ClaimAnswer::Exhausted { attempts: attempt }
        }
        Some(replay) => ClaimAnswer::Replay(replay),
        // Not reached, because a store that reads a terminal record checks that the record has a result and a
        // completion time. If a record lacks one of these, the body still must not run.
        None => ClaimAnswer::Replay(Replay {
            verdict: Verdict::Completed,
            result: StoredResult::Tombstone(Tombstone::NotEncodable),
            attempt: record.attempt,
            completed_at: record.created_at,
            expires_at: record.expires_at,
        }),
    }
}

/// The record in doubt. It never expires. Its lease is over, so a claim that can settle the doubt does not
/// wait.
fn in_doubt(record: &Record, now: Timestamp) -> Record {
    let lease_until = record.lease_until.min(now);
    Record { state: State::InDoubt, lease_until, expires_at: None, ..record.clone() }
}

fn exhaust(record: &Record, request: &Claim, now: Timestamp) -> Transition<ClaimAnswer> {
    let result = StoredResult::Tombstone(Tombstone::Exhausted);
    // The steps stay, because only they show what the last run did.
    let failed = Record {
        steps: record.steps.clone(),
        ..terminal(record, Owner::NOBODY, request.ttl, Verdict::Failed, result, now)
    };
    Transition::put(failed, ClaimAnswer::Exhausted { attempts: record.attempt })
}

pub(super) fn terminal(
    record: &Record,
    owner: Owner,
    ttl: Duration,
    verdict: Verdict,
    result: StoredResult,
    now: Timestamp,
) -> Record {
    // Each field is named, because a copy of the record would also copy its steps, which may be large.
    Record {
        state: match verdict {
            Verdict::Completed => State::Completed,
            Verdict::Failed => State::Failed,
        },
        owner,
        fence: record.fence,
        attempt: record.attempt,
        recovered: record.recovered,
        on_crash: record.on_crash,
        lease_until: record.lease_until,
        retry_at: record.retry_at,
        ttl,
        fingerprint: record.fingerprint,
        result: Some(result),
        // No body runs again, and the result needs the space.
        steps: Vec::new(),
        created_at: record.created_at,
        completed_at: Some(now),
        expires_at: Some(now.after(ttl)),
    }
}

/// The record after a release. `recovered` says whether the next grant takes over from a run whose outcome is
/// unknown. If so, the record counts as a lapsed lease from `retry_at` on.
pub(super) fn released(record: &Record, recovered: bool, retry_after: Duration, now: Timestamp) -> Record {
    // A record that is due at once gets the earliest time, so that it is due even if the clock is set back.
    let retry_at = if retry_after.is_zero() { Timestamp::default() } else { now.after(retry_after) };
    Record {
        state: State::Released,
        recovered,
        retry_at,
        // The record must not expire before its key is due, because then the attempt count would be lost.
        expires_at: Some(now.max(retry_at).after(record.ttl)),
        ..record.clone()
    }
}

/// The record as it was before the grant, because no body started. A key that was in doubt or had a lapsed
/// lease returns to that state.
fn unused(record: &Record, now: Timestamp) -> Record {
    if record.recovered {
        let before = of_nobody(record);
        let is_doubt = record.state == State::InDoubt || record.on_crash == OnCrash::InDoubt;
        return if is_doubt { in_doubt(&before, now) } else { released(&before, true, Duration::ZERO, now) };
    }
    let before = uncounted(record);
    let fingerprint = record.fingerprint.filter(|_| before.attempt != 0);
    Record { fingerprint, ..released(&before, false, Duration::ZERO, now) }
}

/// The record as it was before the grant that took over, with two differences. It has the owner of that
/// grant, so that a late copy of the owner's claim is refused. And it has a new fence, which no owner holds,
/// so the owner can no longer decide about a run that was not its own.
fn of_nobody(record: &Record) -> Record {
    let fence = Fence::new(record.fence.get().saturating_add(1));
    Record { fence, ..uncounted(record) }
}

/// The record without the attempt of this grant.
fn uncounted(record: &Record) -> Record {
    Record { attempt: record.attempt.saturating_sub(1), ..record.clone() }
}

/// Whether requests of the holder still count in this state. The holder of a record in doubt may be alive in
/// spite of its lapsed lease, and knows best what happened.
const fn is_held(state: State) -> bool {
    matches!(state, State::InFlight | State::InDoubt)
}

/// The record, if it is live and was granted to this owner under this fence.
fn mine(record: Option<&Record>, owner: Owner, fence: Fence, now: Timestamp) -> Option<&Record> {
    record.filter(|record| is_live(record, now) && record.owner == owner && record.fence == fence)
}

/// Renews a lease.
#[must_use]
pub fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Transition<RenewAnswer> {
    match mine(record, request.owner, request.fence, now) {
        Some(record) if record.state == State::InFlight => {
            let lease_until = now.after(request.lease);
            let expires_at = in_flight_until(record.on_crash, lease_until, record.ttl);
            Transition::put(Record { lease_until, expires_at, ..record.clone() }, RenewAnswer::Held)
        }
        Some(record) if record.state == State::InDoubt => {
            let lease_until = now.after(request.lease);
            Transition::put(Record { lease_until, ..record.clone() }, RenewAnswer::HeldInDoubt)
        }
        _ => Transition::keep(RenewAnswer::Lost),
    }
}

/// Records a step of the body, even if the lease is over, as [`complete`] does with a result.
///
/// It does not touch the lease.
#[must_use]
pub fn record_step(
    record: Option<&Record>,
    request: &RecordStep,
    now: Timestamp,
) -> Transition<RecordStepAnswer> {
    let mine = mine(record, request.owner, request.fence, now);
    let Some(record) = mine.filter(|record| is_held(record.state)) else {
        return Transition::keep(RecordStepAnswer::Lost);
    };
    let position = usize::try_from(request.position).unwrap_or(usize::MAX);
    if position == record.steps.len() {
        let mut record = record.clone();
        record.steps.push(request.step.clone());
        return Transition::put(record, RecordStepAnswer::Recorded);
    }
    match record.steps.get(position) {
        // The owner sends the request again, because the answer was lost.
        Some(there) if *there == request.step => Transition::keep(RecordStepAnswer::Recorded),
        _ => Transition::keep(RecordStepAnswer::Lost),
    }
}

/// Records a result.
#[must_use]
pub fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Transition<CompleteAnswer> {
    let Some(record) = mine(record, request.owner, request.fence, now) else {
        return Transition::keep(CompleteAnswer::Lost);
    };
    match record.state {
        State::InFlight | State::InDoubt => {
            let result = request.result.clone();
            let done = terminal(record, request.owner, request.ttl, request.verdict, result, now);
            Transition::put(done, CompleteAnswer::Done)
        }
        State::Completed | State::Failed => Transition::keep(CompleteAnswer::Done),
        State::Released => Transition::keep(CompleteAnswer::Lost),
    }
}

/// Releases a claim.
#[must_use]
pub fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
    let Some(record) = mine(record, request.owner, request.fence, now) else {
        return Transition::keep(ReleaseAnswer::Lost);
    };
    match record.state {
        State::InFlight | State::InDoubt => end_without_result(record, request, now),
        State::Released => Transition::keep(ReleaseAnswer::Released),
        State::Completed | State::Failed => Transition::keep(ReleaseAnswer::Lost),
    }
}

fn end_without_result(record: &Record, request: &Release, now: Timestamp) -> Transition<ReleaseAnswer> {
    let was_in_doubt = record.state == State::InDoubt;
    let new = match request.cause {
        ReleaseCause::Failed => released(record, false, request.retry_after, now),
        ReleaseCause::Unused => unused(record, now),
        ReleaseCause::NothingHappened => unused(&Record { recovered: false, ..record.clone() }, now),
        // The key was in doubt already, and this release does not settle the doubt.
        ReleaseCause::Abandoned | ReleaseCause::Doubtful if was_in_doubt => in_doubt(record, now),
        // `recover` could not find out what the earlier run did, so no body started.
        ReleaseCause::Doubtful if record.recovered => in_doubt(&of_nobody(record), now),
        ReleaseCause::Doubtful => in_doubt(record, now),
        ReleaseCause::Abandoned if record.on_crash == OnCrash::InDoubt => in_doubt(record, now),
        ReleaseCause::Abandoned => released(record, true, request.retry_after, now),
    };
    let answer = match (new.state, request.cause) {
        (State::InDoubt, ReleaseCause::Abandoned | ReleaseCause::Doubtful) => ReleaseAnswer::InDoubt,
        _ => ReleaseAnswer::Released,
    };
    if new == *record { Transition::keep(answer) } else { Transition::put(new, answer) }
}
