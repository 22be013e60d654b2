//! A store with one key. It applies rules, keeps the floor (the highest fence of the deleted records), and
//! lets the shadow check each answer against the promises.
//!
//! Owns everything of a store except the rules: the clock, the floor and deletion. Knows no worker.

use super::promise::{Broken, Promise};
use super::protocol::{
    self, Answer, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, Request, Resolution,
    ResolveAnswer, StoredResult, Timestamp, Verdict,
};
use super::rules::{Rules, Step};
use super::shadow::Shadow;
use std::time::Duration;

/// One key of a store, and the promises about it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OneKey {
    pub now: Timestamp,
    pub record: Option<Record>,
    pub floor: Fence,
    pub shadow: Shadow,
}

impl OneKey {
    pub const fn broken(&self) -> Broken {
        self.shadow.broken
    }

    pub fn apply(&mut self, rules: Rules, request: &Request) -> Answer {
        let step = rules.apply(self.record.as_ref(), self.floor, request, self.now);
        self.write(request, step)
    }

    /// The second half of a request that is not atomic: it decides by the record that its first half read.
    pub fn apply_as_seen(&mut self, rules: Rules, seen: Option<&Record>, request: &Request) -> Answer {
        let step = rules.apply(seen, self.floor, request, self.now);
        self.write(request, step)
    }

    fn write(&mut self, request: &Request, step: Step) -> Answer {
        if let Some(record) = step.write {
            let right = protocol::is_endless(&record) == record.expires_at.is_none();
            if !right {
                self.shadow.broken.note(Promise::DoubtsHaveNoEnd);
            }
            self.record = Some(record);
        }
        let (shadow, now) = (&mut self.shadow, self.now);
        match (request, &step.answer) {
            (Request::Claim(request), Answer::Claim(answer)) => shadow.claimed(request, answer, now),
            (Request::Renew(request), Answer::Renew(answer)) => shadow.renewed(request, *answer, now),
            (Request::RecordStep(request), Answer::RecordStep(answer)) => {
                shadow.recorded_step(request, *answer, now);
            }
            (Request::Complete(request), Answer::Complete(answer)) => shadow.completed(request, *answer, now),
            (Request::Release(request), Answer::Release(answer)) => shadow.released(request, *answer, now),
            (Request::Resolve(word), Answer::Resolve(answer)) => shadow.resolved(word, *answer, now),
            (request, answer) => panic!("{answer:?} is no answer to {request:?}"),
        }
        self.look();
        step.answer
    }

    /// Lets the shadow see the recorded steps after each operation, because no answer contains them.
    fn look(&mut self) {
        let live = self.record.as_ref().filter(|record| protocol::is_live(record, self.now));
        let steps = live.map_or(&[][..], |record| &record.steps);
        self.shadow.seen(steps, self.now);
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

    pub fn may_be_purged(&self, rules: Rules) -> bool {
        self.record.as_ref().is_some_and(|record| !(rules.is_live)(record, self.now))
    }

    pub fn purge(&mut self, rules: Rules) {
        if self.may_be_purged(rules) {
            self.delete();
            self.shadow.purged(self.now);
        }
    }

    fn claim(&mut self, rules: Rules, request: &Claim) -> ClaimAnswer {
        ClaimAnswer::try_from(self.apply(rules, &request.clone().into())).expect("the answer to a claim")
    }

    /// Whether the key can get a recorded result from here: by a caller that waits long enough, or by an
    /// operator if the key is in doubt. Works on a copy of this key.
    pub fn can_be_resolved(&self, rules: Rules) -> bool {
        let mut trial = self.clone();
        // At most three tries: one may have to wait for a running lease, and one for a release that is not
        // due.
        for _ in 0..3 {
            let request = last_caller(&trial);
            match trial.claim(rules, &request) {
                ClaimAnswer::Granted(grant) => {
                    let completion = completion(request.owner, grant.fence, &trial);
                    let done = trial.apply(rules, &completion.into());
                    return done == CompleteAnswer::Done.into() && trial.replays(rules);
                }
                ClaimAnswer::Busy { retry_after } | ClaimAnswer::RetryAt { retry_after } => {
                    trial.now = trial.now.after(retry_after);
                }
                ClaimAnswer::InDoubt => {
                    let result = completion(request.owner, Fence::default(), &trial).result;
                    let word = Resolution::Record(Verdict::Completed, result);
                    let resolved = trial.apply(rules, &word.into());
                    return resolved == ResolveAnswer::Resolved.into() && trial.replays(rules);
                }
                ClaimAnswer::Replay(_) | ClaimAnswer::Exhausted { .. } => return trial.replays(rules),
                _ => return false,
            }
        }
        false
    }

    fn replays(mut self, rules: Rules) -> bool {
        let request = last_caller(&self);
        let answer = self.claim(rules, &request);
        let ended = matches!(answer, ClaimAnswer::Replay(_) | ClaimAnswer::Exhausted { .. });
        ended && self.broken().is_empty()
    }
}

/// A claim by a new owner, with the recorded arguments.
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
