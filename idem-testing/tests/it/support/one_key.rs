//! A store with one key. It applies rules, keeps the floor, and lets the shadow check each answer.
//!
//! Owns what a store does besides the rules: the clock, the floor, deletion. Knows no worker.

use super::promise::{Broken, Promise};
use super::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, RecordStep, RecordStepAnswer,
    Release, ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer, StoredResult, Timestamp,
    Transition, Verdict,
};
use super::rules::Rules;
use super::shadow::Shadow;
use std::time::Duration;

/// One key of a store, and the promises about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OneKey {
    pub now: Timestamp,
    pub record: Option<Record>,
    floor: Fence,
    pub shadow: Shadow,
}

impl OneKey {
    pub fn at(now: Timestamp) -> Self {
        Self { now, ..Self::default() }
    }

    pub const fn broken(&self) -> Broken {
        self.shadow.broken
    }

    fn write<A>(&mut self, step: Transition<A>) -> A {
        if let Some(record) = step.write {
            let right = protocol::is_endless(&record) == record.expires_at.is_none();
            if !right {
                self.shadow.broken.note(Promise::DoubtsHaveNoEnd);
            }
            self.record = Some(record);
        }
        step.answer
    }

    pub fn claim<R: Rules>(&mut self, request: &Claim) -> ClaimAnswer {
        let seen = self.record.clone();
        self.claim_as_seen::<R>(seen.as_ref(), request)
    }

    /// The second half of a claim that has read the record before.
    pub fn claim_as_seen<R: Rules>(&mut self, seen: Option<&Record>, request: &Claim) -> ClaimAnswer {
        let answer = self.write(R::claim(seen, self.floor, request, self.now));
        self.shadow.claimed(request, &answer, self.now);
        self.look();
        answer
    }

    pub fn renew<R: Rules>(&mut self, request: &Renew) -> RenewAnswer {
        let answer = self.write(R::renew(self.record.as_ref(), request, self.now));
        self.shadow.renewed(request, answer, self.now);
        self.look();
        answer
    }

    pub fn record_step<R: Rules>(&mut self, request: &RecordStep) -> RecordStepAnswer {
        let answer = self.write(R::record_step(self.record.as_ref(), request, self.now));
        self.shadow.recorded_step(request, answer, self.now);
        self.look();
        answer
    }

    /// A `get` after each operation, because no other answer shows the steps.
    fn look(&mut self) {
        let live = self.record.as_ref().filter(|record| protocol::is_live(record, self.now));
        let steps = live.map_or(&[][..], |record| &record.steps);
        self.shadow.seen(steps, self.now);
    }

    pub fn complete<R: Rules>(&mut self, request: &Complete) -> CompleteAnswer {
        let answer = self.write(R::complete(self.record.as_ref(), request, self.now));
        self.shadow.completed(request, answer, self.now);
        self.look();
        answer
    }

    pub fn release<R: Rules>(&mut self, request: &Release) -> ReleaseAnswer {
        let answer = self.write(R::release(self.record.as_ref(), request, self.now));
        self.shadow.released(request, answer, self.now);
        self.look();
        answer
    }

    pub fn resolve<R: Rules>(&mut self, word: &Resolution) -> ResolveAnswer {
        let answer = self.write(R::resolve(self.record.as_ref(), word, self.now));
        self.shadow.resolved(word, answer, self.now);
        self.look();
        answer
    }

    fn delete(&mut self) {
        if let Some(record) = self.record.take() {
            self.floor = self.floor.max(record.fence);
        }
    }

    pub fn forget(&mut self) {
        self.delete();
        self.shadow.forgotten();
    }

    pub fn may_be_purged<R: Rules>(&self) -> bool {
        self.record.as_ref().is_some_and(|record| !R::is_live(record, self.now))
    }

    pub fn purge<R: Rules>(&mut self) {
        if self.may_be_purged::<R>() {
            self.delete();
            self.shadow.purged(self.now);
        }
    }

    /// Whether a caller with enough time, and an operator, can bring the key to a recorded result from here. Works on a
    /// copy of this key.
    pub fn can_be_resolved<R: Rules>(&self) -> bool {
        let mut trial = self.clone();
        // Three tries: at most two waits, for a running lease or a release that is not due, and then the end.
        for _ in 0..3 {
            let request = last_caller(&trial);
            match trial.claim::<R>(&request) {
                ClaimAnswer::Granted(grant) => {
                    let done = trial.complete::<R>(&completion(request.owner, grant.fence, &trial));
                    return done == CompleteAnswer::Done && trial.replays::<R>();
                }
                ClaimAnswer::Busy { retry_after } | ClaimAnswer::RetryAt { retry_after } => {
                    trial.now = trial.now.after(retry_after);
                }
                ClaimAnswer::InDoubt => {
                    let result = completion(request.owner, Fence::default(), &trial).result;
                    let word = Resolution::Record(Verdict::Completed, result);
                    return trial.resolve::<R>(&word) == ResolveAnswer::Resolved && trial.replays::<R>();
                }
                ClaimAnswer::Replay(_) | ClaimAnswer::Exhausted { .. } => return trial.replays::<R>(),
                _ => return false,
            }
        }
        false
    }

    fn replays<R: Rules>(mut self) -> bool {
        let request = last_caller(&self);
        let answer = self.claim::<R>(&request);
        let ended = matches!(answer, ClaimAnswer::Replay(_) | ClaimAnswer::Exhausted { .. });
        ended && self.broken().is_empty()
    }

    /// Notes whether the key can still be resolved.
    pub fn look_ahead<R: Rules>(&mut self) {
        if self.broken().is_empty() && !self.can_be_resolved::<R>() {
            self.shadow.broken.note(Promise::EveryKeyCanBeResolved);
        }
    }
}

/// A claim by an owner that nobody else has, with the recorded arguments.
fn last_caller(key: &OneKey) -> Claim {
    Claim::new(Owner::from_bytes([0xFE; 16]), Duration::from_micros(2), Duration::from_micros(3))
        .with_fingerprint(key.record.as_ref().and_then(|record| record.fingerprint))
}

fn completion(owner: Owner, fence: Fence, key: &OneKey) -> Complete {
    Complete::new(
        owner,
        fence,
        Verdict::Completed,
        StoredResult::Value(fence.to_string().into()),
        key.record.as_ref().map_or(Duration::from_micros(3), |record| record.ttl),
    )
}
