//! What was promised about one key, kept from the requests and answers alone.
//!
//! Owns the judgement: which promise an answer breaks. It must not look at the record; a rule that
//! writes nonsense is found out by what it answers next.

use super::promise::{Broken, Promise};
use super::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Fingerprint, Grant, OnCrash, Owner, RecordStep,
    RecordStepAnswer, RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution,
    ResolveAnswer, State, StoredResult, Timestamp, Tombstone, Verdict,
};
use std::time::Duration;

/// What was promised so far, and which promises were broken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shadow {
    /// The highest fence ever granted.
    top: Fence,
    /// The current generation, unless its end is over.
    life: Option<Life>,
    /// How many generations there were, as far as `u8` counts.
    pub generations: u8,
    /// Grants under `in_doubt` since a body last asked to be released.
    at_stake: Vec<Fence>,
    /// How many of them were started.
    started: u8,
    pub broken: Broken,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Life {
    last: (Owner, Fence),
    attempts: u32,
    fingerprint: Option<Fingerprint>,
    on_crash: OnCrash,
    ttl: Duration,
    stage: Stage,
    until: Option<Timestamp>,
    /// Those that were acknowledged.
    steps: Vec<RecordedStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Held { lease_until: Timestamp },
    Released { retry_at: Timestamp, by_owner: bool },
    Recorded { verdict: Verdict, result: StoredResult, at: Timestamp, by_owner: bool },
    InDoubt { by_owner: bool },
}

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
        self.stage = Stage::Held { lease_until };
        self.until = match self.on_crash {
            OnCrash::Rerun => Some(lease_until.after(self.ttl)),
            OnCrash::InDoubt => None,
        };
    }

    fn release(&mut self, retry_after: Duration, by_owner: bool, now: Timestamp) {
        // Due at once is due whatever the clock says later.
        let retry_at = if retry_after.is_zero() { Timestamp::default() } else { now.after(retry_after) };
        self.stage = Stage::Released { retry_at, by_owner };
        self.until = Some(now.max(retry_at).after(self.ttl));
    }

    fn doubt(&mut self, by_owner: bool) {
        self.stage = Stage::InDoubt { by_owner };
        self.until = None;
    }

    fn record(&mut self, verdict: Verdict, result: StoredResult, by_owner: bool, now: Timestamp) {
        self.stage = Stage::Recorded { verdict, result, at: now, by_owner };
        self.steps.clear();
        self.until = Some(now.after(self.ttl));
    }

    /// Whether the claimant finds out what happened in somebody else's run, and has an attempt left for it.
    fn is_settled_by(&self, request: &Claim) -> bool {
        let all_used = request.max_attempts.is_some_and(|most| self.attempts >= most.get());
        request.settles_doubt
            && request.on_crash == OnCrash::InDoubt
            && !all_used
            && self.last.0 != request.owner
    }

    /// Whether a lapsed lease is for an operator to judge.
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

    /// From here on a body may start again without breaking a promise.
    fn clean_slate(&mut self) {
        self.at_stake.clear();
        self.started = 0;
    }

    /// Gives the owner another name.
    pub fn rename(&mut self, name: impl FnOnce(Owner) -> Owner) {
        if let Some(life) = &mut self.life {
            life.last.0 = name(life.last.0);
        }
    }

    /// A claim was applied.
    pub fn claimed(&mut self, request: &Claim, answer: &ClaimAnswer, now: Timestamp) {
        let life = self.live(now).cloned();
        let other = life.as_ref().is_some_and(
            |life| matches!((life.fingerprint, request.fingerprint), (Some(old), Some(new)) if old != new),
        );
        let used = matches!(answer, ClaimAnswer::Granted(_) | ClaimAnswer::Replay(_));
        self.demand(Promise::SameArguments, !(other && used));
        self.demand(Promise::AnswersAreTrue, other == (*answer == ClaimAnswer::Mismatch));
        if other || *answer == ClaimAnswer::Mismatch {
            return;
        }
        match (&life, answer) {
            (Some(life), _) if life.last.0 == request.owner && life.state() == State::InFlight => {
                self.asked_again(life, answer);
            }
            (_, ClaimAnswer::Granted(grant)) => self.granted(life, request, *grant, now),
            (Some(life), _) => self.refused(life, request, answer, now),
            (None, _) => self.broken.note(Promise::AnswersAreTrue),
        }
    }

    fn asked_again(&mut self, life: &Life, answer: &ClaimAnswer) {
        let same = matches!(answer, ClaimAnswer::Granted(grant)
            if grant.fence == life.last.1 && grant.attempt == life.attempts);
        self.demand(Promise::AskingAgainFindsTheTruth, same);
    }

    fn granted(&mut self, old: Option<Life>, request: &Claim, grant: Grant, now: Timestamp) {
        self.demand(Promise::FencesRise, grant.fence > self.top);
        self.top = self.top.max(grant.fence);
        let mut took_over = false;
        if let Some(old) = &old {
            match &old.stage {
                Stage::Held { lease_until } => {
                    took_over = true;
                    self.demand(Promise::RunningLeasesAreSafe, *lease_until <= now);
                    let settled = old.is_settled_by(request);
                    self.demand(Promise::InDoubtStartsOnce, !old.is_cautious(request) || settled);
                    if settled && old.is_cautious(request) {
                        self.clean_slate();
                    }
                }
                Stage::Released { retry_at, .. } => self.demand(Promise::AnswersAreTrue, *retry_at <= now),
                Stage::Recorded { .. } => self.broken.note(Promise::NothingIsForgotten),
                Stage::InDoubt { .. } => {
                    took_over = true;
                    self.demand(Promise::InDoubtStartsOnce, old.is_settled_by(request));
                    self.clean_slate();
                }
            }
        } else {
            self.generations = self.generations.saturating_add(1);
            self.clean_slate();
        }
        let attempts = old.as_ref().map_or(0, |old| old.attempts);
        self.demand(Promise::NothingIsForgotten, grant.attempt == attempts.saturating_add(1));
        self.demand(Promise::AnswersAreTrue, grant.recovered == took_over);
        let all_used = request.max_attempts.is_some_and(|most| attempts >= most.get());
        self.demand(Promise::AttemptsEnd, old.is_none() || !all_used);
        if request.on_crash == OnCrash::InDoubt {
            self.at_stake.push(grant.fence);
        }
        let mut life = Life {
            last: (request.owner, grant.fence),
            attempts: grant.attempt,
            fingerprint: request.fingerprint.or(old.as_ref().and_then(|old| old.fingerprint)),
            on_crash: request.on_crash,
            ttl: request.ttl,
            stage: Stage::InDoubt { by_owner: false },
            until: None,
            steps: old.map(|old| old.steps).unwrap_or_default(),
        };
        life.hold(request.lease, now);
        self.life = Some(life);
    }

    fn refused(&mut self, old: &Life, request: &Claim, answer: &ClaimAnswer, now: Timestamp) {
        let mut life = old.clone();
        let all_used = request.max_attempts.is_some_and(|most| old.attempts >= most.get());
        let kept = match (&old.stage, answer) {
            (Stage::Held { lease_until }, ClaimAnswer::Busy { retry_after }) => {
                now < *lease_until && now.after(*retry_after) == *lease_until
            }
            (Stage::Released { retry_at, .. }, ClaimAnswer::RetryAt { retry_after }) => {
                !all_used && now < *retry_at && now.after(*retry_after) == *retry_at
            }
            (Stage::Held { lease_until }, ClaimAnswer::InDoubt) => {
                life.doubt(true);
                *lease_until <= now && old.is_cautious(request) && !old.is_settled_by(request)
            }
            (Stage::InDoubt { .. }, ClaimAnswer::InDoubt) => !old.is_settled_by(request),
            (Stage::Held { lease_until }, ClaimAnswer::Exhausted { attempts }) => {
                self.exhausted(&mut life, request, now);
                *lease_until <= now && all_used && !old.is_cautious(request) && *attempts == old.attempts
            }
            (Stage::Released { .. }, ClaimAnswer::Exhausted { attempts }) => {
                self.exhausted(&mut life, request, now);
                all_used && *attempts == old.attempts
            }
            (Stage::Recorded { result, .. }, ClaimAnswer::Exhausted { attempts }) => {
                *result == StoredResult::Tombstone(Tombstone::Exhausted) && *attempts == old.attempts
            }
            (Stage::Recorded { verdict, result, at, .. }, ClaimAnswer::Replay(replay)) => {
                let same = (replay.verdict, &replay.result, replay.completed_at, replay.attempt)
                    == (*verdict, result, *at, old.attempts);
                self.demand(Promise::ReplaysAreTheResult, same);
                true
            }
            (_, ClaimAnswer::Replay(_)) => {
                self.broken.note(Promise::ReplaysAreTheResult);
                true
            }
            _ => false,
        };
        self.demand(Promise::AnswersAreTrue, kept);
        self.life = Some(life);
    }

    fn exhausted(&mut self, life: &mut Life, request: &Claim, now: Timestamp) {
        life.ttl = request.ttl;
        life.record(Verdict::Failed, StoredResult::Tombstone(Tombstone::Exhausted), false, now);
        self.clean_slate();
    }

    /// A granted claim came back to its worker, which runs the body.
    pub fn started(&mut self, fence: Fence) {
        if self.at_stake.contains(&fence) {
            self.started = self.started.saturating_add(1);
            self.demand(Promise::InDoubtStartsOnce, self.started <= 1);
        }
    }

    /// A renewal was applied.
    pub fn renewed(&mut self, request: &Renew, answer: RenewAnswer, now: Timestamp) {
        let life = self.live(now).filter(|life| life.last == (request.owner, request.fence));
        let holds = life.filter(|life| life.state() == State::InFlight).map(|life| {
            life.hold(request.lease, now);
        });
        self.judge(holds.is_some(), answer == RenewAnswer::Held);
    }

    /// A step was applied.
    pub fn recorded_step(&mut self, request: &RecordStep, answer: RecordStepAnswer, now: Timestamp) {
        let recorded = answer == RecordStepAnswer::Recorded;
        let life = self.live(now).filter(|life| life.last == (request.owner, request.fence));
        let Some(life) = life.filter(|life| life.state() == State::InFlight) else {
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

    /// Somebody looked at the steps.
    pub fn seen(&mut self, steps: &[RecordedStep], now: Timestamp) {
        let kept = steps == self.live(now).map_or(&[][..], |life| &life.steps);
        self.demand(Promise::StepsAreKept, kept);
    }

    fn judge(&mut self, holds: bool, succeeded: bool) {
        self.demand(Promise::OnlyTheHolderActs, holds || !succeeded);
        self.demand(Promise::TheHolderIsHeard, succeeded || !holds);
    }

    /// A completion was applied.
    pub fn completed(&mut self, request: &Complete, answer: CompleteAnswer, now: Timestamp) {
        let done = answer == CompleteAnswer::Done;
        let Some(life) = self.live(now) else { return self.judge(false, done) };
        let mine = life.last == (request.owner, request.fence);
        match &life.stage {
            Stage::Held { .. } if mine => {
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

    /// A release was applied.
    pub fn released(&mut self, request: &Release, answer: ReleaseAnswer, now: Timestamp) {
        let said = answer != ReleaseAnswer::Lost;
        let Some(life) = self.live(now).filter(|life| life.last == (request.owner, request.fence)) else {
            return self.judge(false, said);
        };
        let doubtful = request.cause == ReleaseCause::Doubtful
            || request.cause == ReleaseCause::Abandoned && life.on_crash == OnCrash::InDoubt;
        match life.stage {
            Stage::Held { .. } => {
                let expected = if doubtful {
                    life.doubt(true);
                    ReleaseAnswer::InDoubt
                } else {
                    life.release(request.retry_after, true, now);
                    ReleaseAnswer::Released
                };
                if request.cause == ReleaseCause::Failed {
                    self.clean_slate();
                }
                self.judge(true, said);
                self.demand(Promise::AnswersAreTrue, answer == expected || !said);
                self.demand(Promise::InDoubtStartsOnce, !(doubtful && answer == ReleaseAnswer::Released));
            }
            Stage::Released { by_owner: true, .. } => {
                self.demand(Promise::AskingAgainFindsTheTruth, answer == ReleaseAnswer::Released);
            }
            Stage::InDoubt { by_owner: true }
                if matches!(request.cause, ReleaseCause::Abandoned | ReleaseCause::Doubtful) =>
            {
                self.demand(Promise::AskingAgainFindsTheTruth, answer == ReleaseAnswer::InDoubt);
            }
            _ => self.judge(false, said),
        }
    }

    /// An operator's word was applied.
    pub fn resolved(&mut self, word: &Resolution, answer: ResolveAnswer, now: Timestamp) {
        let expected = match self.live(now) {
            None => ResolveAnswer::Absent,
            Some(life) if life.state() != State::InDoubt => ResolveAnswer::NotInDoubt(life.state()),
            Some(life) => {
                match word {
                    Resolution::Record(verdict, result) => life.record(*verdict, result.clone(), false, now),
                    Resolution::Release => life.release(Duration::ZERO, false, now),
                }
                self.clean_slate();
                ResolveAnswer::Resolved
            }
        };
        self.demand(Promise::AnswersAreTrue, answer == expected);
    }

    /// A purge deleted the record.
    pub fn purged(&mut self, now: Timestamp) {
        let live = self.live(now).is_some();
        self.demand(Promise::NothingIsForgotten, !live);
        self.life = None;
    }

    /// An operator deleted the record.
    pub fn forgotten(&mut self) {
        self.life = None;
        self.clean_slate();
    }
}
