//! The transitions. Each takes what the store holds, what is asked and the store's now, and says
//! what to write and what to answer.

use std::time::Duration;

use super::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, OnCrash, Owner, Record, RecordStep,
    RecordStepAnswer, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Replay, Resolution,
    ResolveAnswer, State, StoredResult, Timestamp, Tombstone, Verdict,
};

/// What a transition does: the record to write, if it changes, and the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<A> {
    /// The new record; `None` leaves everything as it is.
    pub write: Option<Record>,
    /// The answer.
    pub answer: A,
}

impl<A> Step<A> {
    const fn keep(answer: A) -> Self {
        Self { write: None, answer }
    }

    const fn put(record: Record, answer: A) -> Self {
        Self { write: Some(record), answer }
    }
}

/// Whether a record counts at all: one past its `expires_at` is absent, deleted or not.
#[must_use]
pub fn is_live(record: &Record, now: Timestamp) -> bool {
    record.expires_at.is_none_or(|end| now < end)
}

fn live(record: Option<&Record>, now: Timestamp) -> Option<&Record> {
    record.filter(|record| is_live(record, now))
}

/// Claims a key.
///
/// `record` is what the store holds, expired or not. `floor` is a fence that every new one must
/// exceed; a store that deletes records passes the highest fence it has deleted, so that fences
/// rise even if its clock steps back, and [`Fence::default`] where it keeps none.
#[must_use]
pub fn claim(record: Option<&Record>, floor: Fence, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
    let old_fence = record.map_or(floor, |record| record.fence.max(floor));
    let Some(record) = live(record, now) else {
        return grant(None, old_fence, request, now, false);
    };
    if let (Some(recorded), Some(asked)) = (record.fingerprint, request.fingerprint)
        && recorded != asked
    {
        return Step::keep(ClaimAnswer::Mismatch);
    }
    match record.state {
        State::Completed | State::Failed => Step::keep(replay(record)),
        State::InDoubt if settles(record, request) => grant(Some(record), old_fence, request, now, true),
        State::InDoubt => Step::keep(ClaimAnswer::InDoubt),
        State::InFlight if record.owner == request.owner => Step::keep(ClaimAnswer::Granted(Grant {
            fence: record.fence,
            attempt: record.attempt,
            recovered: record.recovered,
            lease_left: record.lease_until.since(now),
        })),
        State::InFlight if now < record.lease_until => {
            Step::keep(ClaimAnswer::Busy { retry_after: record.lease_until.since(now) })
        }
        State::InFlight if record.on_crash == OnCrash::InDoubt || request.on_crash == OnCrash::InDoubt => {
            if settles(record, request) {
                grant(Some(record), old_fence, request, now, true)
            } else {
                Step::put(in_doubt(record), ClaimAnswer::InDoubt)
            }
        }
        State::InFlight | State::Released if attempts_are_over(record, request) => {
            exhaust(record, request, now)
        }
        State::InFlight => grant(Some(record), old_fence, request, now, true),
        State::Released if now < record.retry_at => {
            Step::keep(ClaimAnswer::RetryAt { retry_after: record.retry_at.since(now) })
        }
        State::Released => grant(Some(record), old_fence, request, now, false),
    }
}

fn attempts_are_over(record: &Record, request: &Claim) -> bool {
    request.max_attempts.is_some_and(|most| record.attempt >= most.get())
}

/// Whether the claimant may find out what happened in a run that is in doubt. Its own run it cannot: that
/// would be a late copy of a claim that was given up since.
fn settles(record: &Record, request: &Claim) -> bool {
    may_settle(request) && record.owner != request.owner && !attempts_are_over(record, request)
}

/// Whether this claim settles doubts at all. One that would let the next crash be rerun does not: given back
/// unused, it would leave a lapsed lease in the place of a doubt.
pub(crate) fn may_settle(request: &Claim) -> bool {
    request.settles_doubt && request.on_crash == OnCrash::InDoubt
}

fn grant(
    record: Option<&Record>,
    old_fence: Fence,
    request: &Claim,
    now: Timestamp,
    recovered: bool,
) -> Step<ClaimAnswer> {
    let fence = Fence::new(old_fence.get().saturating_add(1).max(now.as_micros()));
    let attempt = record.map_or(0, |record| record.attempt).saturating_add(1);
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
    Step::put(
        new,
        ClaimAnswer::Granted(Grant { fence, attempt, recovered, lease_left: lease_until.since(now) }),
    )
}

fn in_flight_until(on_crash: OnCrash, lease_until: Timestamp, ttl: Duration) -> Option<Timestamp> {
    match on_crash {
        OnCrash::Rerun => Some(lease_until.after(ttl)),
        // Forgetting it would start the body a second time.
        OnCrash::InDoubt => None,
    }
}

fn replay(record: &Record) -> ClaimAnswer {
    match record.replay() {
        Some(Replay { result: StoredResult::Tombstone(Tombstone::Exhausted), attempt, .. }) => {
            ClaimAnswer::Exhausted { attempts: attempt }
        }
        Some(replay) => ClaimAnswer::Replay(replay),
        // A terminal record has both; a store's reader sees to it. Whatever it is, it must not run.
        None => ClaimAnswer::Replay(Replay {
            verdict: Verdict::Completed,
            result: StoredResult::Tombstone(Tombstone::NotEncodable),
            attempt: record.attempt,
            completed_at: record.created_at,
        }),
    }
}

fn in_doubt(record: &Record) -> Record {
    Record { state: State::InDoubt, expires_at: None, ..record.clone() }
}

fn exhaust(record: &Record, request: &Claim, now: Timestamp) -> Step<ClaimAnswer> {
    let failed = Record { ttl: request.ttl, ..record.clone() };
    let result = StoredResult::Tombstone(Tombstone::Exhausted);
    Step::put(
        terminal(&failed, Owner::NOBODY, Verdict::Failed, result, now),
        ClaimAnswer::Exhausted { attempts: record.attempt },
    )
}

fn terminal(record: &Record, owner: Owner, verdict: Verdict, result: StoredResult, now: Timestamp) -> Record {
    Record {
        state: match verdict {
            Verdict::Completed => State::Completed,
            Verdict::Failed => State::Failed,
        },
        owner,
        result: Some(result),
        // Nobody runs the body again, and the room is the result's.
        steps: Vec::new(),
        completed_at: Some(now),
        expires_at: Some(now.after(record.ttl)),
        ..record.clone()
    }
}

fn released(record: &Record, retry_after: Duration, now: Timestamp) -> Record {
    // Due at once is due by any clock, also one that is set back meanwhile.
    let retry_at = if retry_after.is_zero() { Timestamp::default() } else { now.after(retry_after) };
    Record {
        state: State::Released,
        retry_at,
        // A record that is not due must not be forgotten first, or its attempts would be too.
        expires_at: Some(now.max(retry_at).after(record.ttl)),
        ..record.clone()
    }
}

/// As if the grant had not been: a lapsed lease that it took over from is lapsed again.
fn unused(record: &Record, now: Timestamp) -> Record {
    let before =
        Record { attempt: record.attempt.saturating_sub(1), ..released(record, Duration::ZERO, now) };
    if record.recovered {
        Record { state: State::InFlight, owner: Owner::NOBODY, lease_until: now, ..before }
    } else {
        before
    }
}

/// The record, if it is live and was granted to this owner under this fence.
fn mine(record: Option<&Record>, owner: Owner, fence: Fence, now: Timestamp) -> Option<&Record> {
    live(record, now).filter(|record| record.owner == owner && record.fence == fence)
}

/// Renews a lease.
#[must_use]
pub fn renew(record: Option<&Record>, request: &Renew, now: Timestamp) -> Step<RenewAnswer> {
    match mine(record, request.owner, request.fence, now) {
        Some(record) if record.state == State::InFlight => {
            let lease_until = now.after(request.lease);
            let expires_at = in_flight_until(record.on_crash, lease_until, record.ttl);
            Step::put(Record { lease_until, expires_at, ..record.clone() }, RenewAnswer::Held)
        }
        _ => Step::keep(RenewAnswer::Lost),
    }
}

/// Records a step of the body, also if the lease is over: it is as true as a result is then.
///
/// It does not touch the lease.
#[must_use]
pub fn record_step(record: Option<&Record>, request: &RecordStep, now: Timestamp) -> Step<RecordStepAnswer> {
    let mine = mine(record, request.owner, request.fence, now);
    let Some(record) = mine.filter(|record| record.state == State::InFlight) else {
        return Step::keep(RecordStepAnswer::Lost);
    };
    let position = usize::try_from(request.position).unwrap_or(usize::MAX);
    if position == record.steps.len() {
        let mut record = record.clone();
        record.steps.push(request.step.clone());
        return Step::put(record, RecordStepAnswer::Recorded);
    }
    match record.steps.get(position) {
        // The answer was lost.
        Some(there) if *there == request.step => Step::keep(RecordStepAnswer::Recorded),
        _ => Step::keep(RecordStepAnswer::Lost),
    }
}

/// Records a result.
#[must_use]
pub fn complete(record: Option<&Record>, request: &Complete, now: Timestamp) -> Step<CompleteAnswer> {
    let Some(record) = mine(record, request.owner, request.fence, now) else {
        return Step::keep(CompleteAnswer::Lost);
    };
    match record.state {
        State::InFlight => {
            let record = Record { ttl: request.ttl, ..record.clone() };
            let done = terminal(&record, request.owner, request.verdict, request.result.clone(), now);
            Step::put(done, CompleteAnswer::Done)
        }
        State::Completed | State::Failed => Step::keep(CompleteAnswer::Done),
        State::Released | State::InDoubt => Step::keep(CompleteAnswer::Lost),
    }
}

/// Gives a claim up.
#[must_use]
pub fn release(record: Option<&Record>, request: &Release, now: Timestamp) -> Step<ReleaseAnswer> {
    let Some(record) = mine(record, request.owner, request.fence, now) else {
        return Step::keep(ReleaseAnswer::Lost);
    };
    match record.state {
        State::InFlight => match (request.cause, record.on_crash) {
            (ReleaseCause::Abandoned, OnCrash::InDoubt) | (ReleaseCause::Doubtful, _) => {
                Step::put(in_doubt(record), ReleaseAnswer::InDoubt)
            }
            (ReleaseCause::Unused, _) => Step::put(unused(record, now), ReleaseAnswer::Released),
            (ReleaseCause::Failed | ReleaseCause::Abandoned, _) => {
                Step::put(released(record, request.retry_after, now), ReleaseAnswer::Released)
            }
        },
        State::Released => Step::keep(ReleaseAnswer::Released),
        State::InDoubt if matches!(request.cause, ReleaseCause::Abandoned | ReleaseCause::Doubtful) => {
            Step::keep(ReleaseAnswer::InDoubt)
        }
        State::InDoubt | State::Completed | State::Failed => Step::keep(ReleaseAnswer::Lost),
    }
}

/// Carries out an operator's word on a key in doubt.
#[must_use]
pub fn resolve(record: Option<&Record>, resolution: &Resolution, now: Timestamp) -> Step<ResolveAnswer> {
    let Some(record) = live(record, now) else {
        return Step::keep(ResolveAnswer::Absent);
    };
    if record.state != State::InDoubt {
        return Step::keep(ResolveAnswer::NotInDoubt(record.state));
    }
    let new = match resolution {
        Resolution::Record(verdict, result) => terminal(record, Owner::NOBODY, *verdict, result.clone(), now),
        // The owner goes too: the worker in doubt must not take the release for its own.
        Resolution::Release => Record { owner: Owner::NOBODY, ..released(record, Duration::ZERO, now) },
    };
    Step::put(new, ResolveAnswer::Resolved)
}
