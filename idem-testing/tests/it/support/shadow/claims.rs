//! Checks the answers to claims: who may be granted a key, and which refusal is correct.

use super::{Life, Shadow, Stage};
use crate::support::promise::Promise;
use crate::support::protocol::{
    Claim, ClaimAnswer, Grant, OnCrash, State, StoredResult, Timestamp, Tombstone, Verdict,
};

impl Shadow {
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
                self.asked_again(life, request, answer, now);
            }
            (Some(Life { last, stage: Stage::Released { retry_at, by_owner: true, .. }, .. }), _)
                if last.0 == request.owner =>
            {
                let wanted = ClaimAnswer::RetryAt { retry_after: retry_at.since(now) };
                self.demand(Promise::LateCopiesReviveNothing, *answer == wanted);
            }
            (_, ClaimAnswer::Granted(grant)) => self.granted(life, request, *grant, now),
            (Some(life), _) => self.refused(life, request, answer, now),
            (None, _) => self.broken.note(Promise::AnswersAreTrue),
        }
    }

    fn asked_again(&mut self, life: &Life, request: &Claim, answer: &ClaimAnswer, now: Timestamp) {
        let past = request.max_attempts.is_some_and(|most| life.attempts > most.get());
        let lease_left = life.lease_until(now).since(now);
        let same = matches!(answer, ClaimAnswer::Granted(grant)
            if grant.fence == life.last.1 && grant.attempt == life.attempts && grant.recovered == life.recovered
                && grant.recover_only == (past && life.recovered) && grant.lease_left == lease_left);
        self.demand(Promise::AskingAgainFindsTheTruth, same);
    }

    fn granted(&mut self, old: Option<Life>, request: &Claim, grant: Grant, now: Timestamp) {
        self.demand(Promise::FencesRise, grant.fence > self.top);
        self.top = self.top.max(grant.fence);
        let took_over = old.as_ref().is_some_and(|old| old.open_since().is_some());
        if let Some(old) = &old {
            let was_over = match old.stage {
                Stage::Released { retry_at, .. } => {
                    self.demand(Promise::AnswersAreTrue, retry_at <= now);
                    true
                }
                Stage::Held { lease_until } | Stage::InDoubt { lease_until } => lease_until <= now,
                Stage::Recorded { .. } => true,
            };
            self.demand(Promise::RunningLeasesAreSafe, was_over);
            self.demand(Promise::NothingIsForgotten, !matches!(old.stage, Stage::Recorded { .. }));
            let in_doubt = old.state() == State::InDoubt || took_over && old.is_cautious(request);
            self.demand(Promise::InDoubtStartsOnce, !in_doubt || old.is_settled_by(request));
            if in_doubt {
                self.clean_slate();
            }
        } else {
            (self.since, self.bodies) = (grant.fence, 0);
            self.clean_slate();
        }
        let attempts = old.as_ref().map_or(1, |old| old.next_attempts(request));
        self.demand(Promise::NothingIsForgotten, grant.attempt == attempts);
        // If the attempts already exceed `max_attempts`, the protocol does not count the grant. A release of
        // that grant still takes one attempt off, because the record does not say whether the grant was
        // counted. So one more body may start.
        if old.as_ref().is_some_and(|old| old.attempts == attempts) {
            self.bodies = 0;
        }
        self.demand(
            Promise::AnswersAreTrue,
            grant.recovered == took_over && grant.lease_left == request.lease,
        );
        // The engine loads no steps for a first attempt, so a recovered grant must not be a first attempt.
        self.demand(Promise::AnswersAreTrue, !grant.recovered || grant.attempt > 1);
        let all_used = old.as_ref().is_some_and(|old| old.all_used(request));
        self.demand(Promise::AttemptsEnd, !all_used || request.recovers && took_over);
        self.demand(Promise::AttemptsEnd, grant.recover_only == all_used);
        if request.on_crash == OnCrash::InDoubt {
            self.at_stake.push(grant.fence);
        }
        let mut life = Life {
            last: (request.owner, grant.fence),
            attempts: grant.attempt,
            recovered: took_over,
            fingerprint: request.fingerprint.or(old.as_ref().and_then(|old| old.fingerprint)),
            on_crash: request.on_crash,
            ttl: request.ttl,
            stage: Stage::Held { lease_until: now },
            until: None,
            steps: old.map(|old| old.steps).unwrap_or_default(),
        };
        life.hold(request.lease, now);
        self.life = Some(life);
    }

    fn refused(&mut self, old: &Life, request: &Claim, answer: &ClaimAnswer, now: Timestamp) {
        let mut life = old.clone();
        let (all_used, settled) = (old.all_used(request), old.is_settled_by(request));
        let is_over = old.open_since().is_some_and(|since| since <= now);
        let kept = match (&old.stage, answer) {
            (Stage::Held { lease_until }, ClaimAnswer::Busy { retry_after }) => {
                now < *lease_until && now.after(*retry_after) == *lease_until
            }
            (Stage::InDoubt { lease_until }, ClaimAnswer::Busy { retry_after }) => {
                settled && now < *lease_until && now.after(*retry_after) == *lease_until
            }
            (Stage::Released { retry_at, is_open, .. }, ClaimAnswer::RetryAt { retry_after }) => {
                (*is_open || !all_used) && now < *retry_at && now.after(*retry_after) == *retry_at
            }
            (Stage::InDoubt { .. }, ClaimAnswer::InDoubt) => !settled,
            (_, ClaimAnswer::InDoubt) => {
                life.doubt(now);
                is_over && old.is_cautious(request) && !settled
            }
            (Stage::Recorded { result, .. }, ClaimAnswer::Exhausted { attempts }) => {
                *result == StoredResult::Tombstone(Tombstone::Exhausted) && *attempts == old.attempts
            }
            (stage, ClaimAnswer::Exhausted { attempts }) => {
                self.exhausted(&mut life, request, now);
                let is_closed = matches!(stage, Stage::Released { is_open: false, .. });
                let nobody_asks = is_over && !old.is_cautious(request) && !request.recovers;
                all_used && (is_closed || nobody_asks) && *attempts == old.attempts
            }
            (Stage::Recorded { verdict, result, at, .. }, ClaimAnswer::Replay(replay)) => {
                let same = (replay.verdict, &replay.result, replay.completed_at, replay.attempt)
                    == (*verdict, result, *at, old.attempts)
                    && replay.expires_at == old.until;
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
        let steps = std::mem::take(&mut life.steps);
        life.record(Verdict::Failed, StoredResult::Tombstone(Tombstone::Exhausted), false, now);
        life.steps = steps;
        self.clean_slate();
    }
}
