//! Follows one key by its requests, answers and recorded steps, and decides which promise an answer breaks.
//!
//! Apart from the steps, the shadow must not look at the record. If a rule writes a wrong record, a later
//! answer shows the fault. `claims` judges the answers to claims.

mod claims;

use super::promise::{Broken, Promise};
use super::protocol::{
    Claim, Complete, CompleteAnswer, Fence, Fingerprint, OnCrash, Owner, RecordStep, RecordStepAnswer,
    RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer, State,
    StoredResult, Timestamp, Verdict,
};
use std::num::NonZeroU32;
use std::time::Duration;

/// What was promised so far, and which promises were broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shadow {
    /// The highest fence ever granted.
    top: Fence,
    /// The current generation, which may have expired. A generation lasts from the first grant of an absent
    /// key to the end of its record.
    life: Option<Life>,
    /// The first fence of the current generation.
    since: Fence,
    /// How many bodies the current generation started.
    bodies: u32,
    /// Grants under `in_doubt`. Under all of them together, the body may start once. An event after which the
    /// body may start again empties this list.
    at_stake: Vec<Fence>,
    /// How many bodies were started under the grants of `at_stake`.
    started: u8,
    pub broken: Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Life {
    last: (Owner, Fence),
    attempts: u32,
    /// Whether the last grant took over from a run that began and did not end.
    recovered: bool,
    fingerprint: Option<Fingerprint>,
    on_crash: OnCrash,
    ttl: Duration,
    stage: Stage,
    until: Option<Timestamp>,
    /// The acknowledged steps.
    steps: Vec<RecordedStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Held {
        lease_until: Timestamp,
    },
    /// `is_open` says that the last run began and did not end.
    Released {
        lease_until: Timestamp,
        retry_at: Timestamp,
        by_owner: bool,
        is_open: bool,
    },
    Recorded {
        verdict: Verdict,
        result: StoredResult,
        at: Timestamp,
        by_owner: bool,
    },
    InDoubt {
        lease_until: Timestamp,
    },
}

/// The fence of a record whose last holder no longer counts. No request has this fence. It is not zero: a
/// made-up request may have the fence zero, and its sender would count as the holder.
const OF_NOBODY: Fence = Fence::new(u64::MAX);

impl Life {
    fn state(&self) -> State {
        match self.stage {
            Stage::Held { .. } => State::InFlight,
            Stage::Released { .. } => State::Released,
            Stage::Recorded { verdict: Verdict::Completed, .. } => State::Completed,
            Stage::Recorded { verdict: Verdict::Failed, .. } => State::Failed,
            Stage::InDoubt { .. } => State::InDoubt,
        }
    }

    fn hold(&mut self, lease: Duration, now: Timestamp) {
        let lease_until = now.after(lease);
        if self.state() == State::InDoubt {
            self.stage = Stage::InDoubt { lease_until };
            return;
        }
        self.stage = Stage::Held { lease_until };
        self.until = match self.on_crash {
            OnCrash::Rerun => Some(lease_until.after(self.ttl)),
            _ => None,
        };
    }

    fn release(&mut self, retry_after: Duration, by_owner: bool, is_open: bool, now: Timestamp) {
        // A record that is due at once gets the earliest time, so that it is due even if the clock is set
        // back.
        let retry_at = if retry_after.is_zero() { Timestamp::default() } else { now.after(retry_after) };
        self.stage = Stage::Released { lease_until: self.lease_until(now), retry_at, by_owner, is_open };
        self.until = Some(now.max(retry_at).after(self.ttl));
    }

    fn doubt(&mut self, now: Timestamp) {
        self.stage = Stage::InDoubt { lease_until: self.lease_until(now).min(now) };
        self.until = None;
    }

    /// The end of the last lease, even if the claim was released. A record with a result has no lease, so
    /// this returns `now`.
    fn lease_until(&self, now: Timestamp) -> Timestamp {
        match self.stage {
            Stage::Held { lease_until }
            | Stage::InDoubt { lease_until }
            | Stage::Released { lease_until, .. } => lease_until,
            Stage::Recorded { .. } => now,
        }
    }

    /// Takes the attempt back, because the body of the last grant was not started.
    fn uncount(&mut self) {
        self.attempts = self.attempts.saturating_sub(1);
        if self.attempts == 0 {
            self.fingerprint = None;
        }
    }

    fn record(&mut self, verdict: Verdict, result: StoredResult, by_owner: bool, now: Timestamp) {
        self.stage = Stage::Recorded { verdict, result, at: now, by_owner };
        self.steps.clear();
        self.until = Some(now.after(self.ttl));
    }

    /// Whether requests of the last holder still count.
    fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held { .. } | Stage::InDoubt { .. })
    }

    /// Applies a release by the holder.
    fn give_up(&mut self, request: &Release, now: Timestamp) -> ReleaseAnswer {
        let was_in_doubt = self.state() == State::InDoubt;
        let doubts = was_in_doubt || self.on_crash == OnCrash::InDoubt;
        match request.cause {
            ReleaseCause::Failed => self.release(request.retry_after, true, false, now),
            ReleaseCause::Unused if self.recovered => {
                self.uncount();
                self.last.1 = OF_NOBODY;
                if doubts {
                    self.doubt(now);
                } else {
                    self.release(Duration::ZERO, true, true, now);
                }
            }
            ReleaseCause::Unused | ReleaseCause::NothingHappened => {
                self.uncount();
                self.release(Duration::ZERO, true, false, now);
            }
            ReleaseCause::Abandoned if !doubts => self.release(request.retry_after, true, true, now),
            _ => {
                if request.cause == ReleaseCause::Doubtful && self.recovered && !was_in_doubt {
                    self.uncount();
                    self.last.1 = OF_NOBODY;
                }
                self.doubt(now);
                return ReleaseAnswer::InDoubt;
            }
        }
        ReleaseAnswer::Released
    }

    /// Whether this claim may take over the key in doubt: it recovers under `in_doubt`, and the last run was
    /// another owner's.
    fn is_settled_by(&self, request: &Claim) -> bool {
        request.recovers && request.on_crash == OnCrash::InDoubt && self.last.0 != request.owner
    }

    fn all_used(&self, request: &Claim) -> bool {
        request.max_attempts.is_some_and(|most| self.attempts >= most.get())
    }

    /// The number of attempts after the next grant. If the attempts exceed the limit already, the next grant
    /// is not counted.
    fn next_attempts(&self, request: &Claim) -> u32 {
        let past = request.max_attempts.is_some_and(|most| self.attempts > most.get());
        if past { self.attempts } else { self.attempts.saturating_add(1) }
    }

    /// If the last run began and did not end: the time from which another caller may take over. That is the
    /// end of the lease, or after a release the time to retry.
    fn open_since(&self) -> Option<Timestamp> {
        match self.stage {
            Stage::Held { lease_until } | Stage::InDoubt { lease_until } => Some(lease_until),
            Stage::Released { retry_at, is_open: true, .. } => Some(retry_at),
            _ => None,
        }
    }

    /// Whether a lapsed lease puts the key in doubt.
    fn is_cautious(&self, request: &Claim) -> bool {
        self.on_crash == OnCrash::InDoubt || request.on_crash == OnCrash::InDoubt
    }
}

impl Shadow {
    fn live(&mut self, now: Timestamp) -> Option<&mut Life> {
        self.life.as_mut().filter(|life| life.until.is_none_or(|until| now < until))
    }

    fn demand(&mut self, promise: Promise, kept: bool) {
        if !kept {
            self.broken.note(promise);
        }
    }

    /// Notes that a body may start again without breaking a promise.
    fn clean_slate(&mut self) {
        self.at_stake.clear();
        self.started = 0;
    }

    pub fn rename(&mut self, name: impl FnOnce(Owner) -> Owner) {
        if let Some(life) = &mut self.life {
            life.last.0 = name(life.last.0);
        }
    }

    /// Notes that a worker got its grant and runs the body. `most` is the limit of attempts in its claim.
    pub fn started(&mut self, fence: Fence, most: Option<NonZeroU32>) {
        if fence >= self.since {
            self.bodies = self.bodies.saturating_add(1);
            self.demand(Promise::AttemptsEnd, most.is_none_or(|most| self.bodies <= most.get()));
        }
        if self.at_stake.contains(&fence) {
            self.started = self.started.saturating_add(1);
            self.demand(Promise::InDoubtStartsOnce, self.started <= 1);
        }
    }

    pub fn renewed(&mut self, request: &Renew, answer: RenewAnswer, now: Timestamp) {
        let life = self.live(now).filter(|life| life.last == (request.owner, request.fence));
        let Some(life) = life.filter(|life| life.is_held()) else {
            return self.judge(false, answer != RenewAnswer::Lost);
        };
        life.hold(request.lease, now);
        let wanted = match life.state() {
            State::InDoubt => RenewAnswer::HeldInDoubt,
            _ => RenewAnswer::Held,
        };
        self.judge(true, answer != RenewAnswer::Lost);
        self.demand(Promise::AnswersAreTrue, answer == wanted || answer == RenewAnswer::Lost);
    }

    pub fn recorded_step(&mut self, request: &RecordStep, answer: RecordStepAnswer, now: Timestamp) {
        let recorded = answer == RecordStepAnswer::Recorded;
        let life = self.live(now).filter(|life| life.last == (request.owner, request.fence));
        let Some(life) = life.filter(|life| life.is_held()) else {
            return self.judge(false, recorded);
        };
        let position = usize::try_from(request.position).unwrap_or(usize::MAX);
        match life.steps.get(position) {
            Some(there) => {
                let same = *there == request.step;
                self.demand(Promise::AskingAgainFindsTheTruth, recorded || !same);
                self.demand(Promise::AnswersAreTrue, same || !recorded);
            }
            None if position == life.steps.len() => {
                life.steps.push(request.step.clone());
                self.judge(true, recorded);
            }
            None => self.demand(Promise::AnswersAreTrue, !recorded),
        }
    }

    /// Checks the recorded steps.
    pub fn seen(&mut self, steps: &[RecordedStep], now: Timestamp) {
        let kept = steps == self.live(now).map_or(&[][..], |life| &life.steps);
        self.demand(Promise::StepsAreKept, kept);
    }

    fn judge(&mut self, holds: bool, succeeded: bool) {
        self.demand(Promise::OnlyTheHolderActs, holds || !succeeded);
        self.demand(Promise::TheHolderIsHeard, succeeded || !holds);
    }

    pub fn completed(&mut self, request: &Complete, answer: CompleteAnswer, now: Timestamp) {
        let done = answer == CompleteAnswer::Done;
        let Some(life) = self.live(now) else { return self.judge(false, done) };
        let mine = life.last == (request.owner, request.fence);
        match &life.stage {
            Stage::Held { .. } | Stage::InDoubt { .. } if mine => {
                life.ttl = request.ttl;
                life.record(request.verdict, request.result.clone(), true, now);
                self.judge(true, done);
            }
            Stage::Recorded { by_owner: true, .. } if mine => {
                self.demand(Promise::AskingAgainFindsTheTruth, done);
            }
            Stage::Recorded { .. } => {
                self.demand(Promise::OneResult, !done);
                self.judge(false, done);
            }
            _ => self.judge(false, done),
        }
    }

    pub fn released(&mut self, request: &Release, answer: ReleaseAnswer, now: Timestamp) {
        let said = answer != ReleaseAnswer::Lost;
        let Some(life) = self.live(now).filter(|life| life.last == (request.owner, request.fence)) else {
            return self.judge(false, said);
        };
        match life.stage {
            Stage::Held { .. } | Stage::InDoubt { .. } => {
                let wanted = life.give_up(request, now);
                if matches!(request.cause, ReleaseCause::Failed | ReleaseCause::NothingHappened) {
                    self.clean_slate();
                }
                self.judge(true, said);
                self.demand(Promise::AnswersAreTrue, answer == wanted || !said);
                let known = wanted == ReleaseAnswer::InDoubt && answer == ReleaseAnswer::Released;
                self.demand(Promise::InDoubtStartsOnce, !known);
            }
            Stage::Released { by_owner: true, .. } => {
                self.demand(Promise::AskingAgainFindsTheTruth, answer == ReleaseAnswer::Released);
            }
            _ => self.judge(false, said),
        }
    }

    /// Checks the answer to an operator's decision.
    pub fn resolved(&mut self, word: &Resolution, answer: ResolveAnswer, now: Timestamp) {
        let expected = match self.live(now) {
            None => ResolveAnswer::Absent,
            Some(life) if life.state() != State::InDoubt => ResolveAnswer::NotInDoubt(life.state()),
            Some(life) => {
                match word {
                    Resolution::Record(verdict, result) => life.record(*verdict, result.clone(), false, now),
                    _ => life.release(Duration::ZERO, false, false, now),
                }
                self.clean_slate();
                ResolveAnswer::Resolved
            }
        };
        self.demand(Promise::AnswersAreTrue, answer == expected);
    }

    /// Checks a purge that deleted the record: the record must have expired.
    pub fn purged(&mut self, now: Timestamp) {
        let live = self.live(now).is_some();
        self.demand(Promise::NothingIsForgotten, !live);
        self.life = None;
    }

    /// Notes that an operator deleted the record.
    pub fn forgotten(&mut self) {
        self.life = None;
        self.clean_slate();
    }
}
