//! What the answer must be: the protocol's functions, on records kept in a map.

use std::collections::HashMap;
use std::time::Duration;

use super::moves::Ask;
use super::{TOLERANCE, close, timeless};
use crate::key::RecordKey;
use crate::protocol::{
    self, ClaimAnswer, CompleteAnswer, Fence, Grant, Record, RecordStepAnswer, ReleaseAnswer, RenewAnswer,
    Replay, ResolveAnswer, Timestamp,
};
use crate::testing::conformance::trial::{Checked, same, that};

/// The answer to any operation.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    Claim(ClaimAnswer),
    Renew(RenewAnswer),
    RecordStep(RecordStepAnswer),
    Complete(CompleteAnswer),
    Release(ReleaseAnswer),
    Resolve(ResolveAnswer),
    Forget(bool),
    Get,
    /// How many, or for the oracle at most how many.
    Purge(usize),
}

impl Answer {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Claim(ClaimAnswer::Granted(Grant { recovered: true, .. })) => "claim: Granted, recovered",
            Self::Claim(ClaimAnswer::Granted(_)) => "claim: Granted",
            Self::Claim(ClaimAnswer::Busy { .. }) => "claim: Busy",
            Self::Claim(ClaimAnswer::RetryAt { .. }) => "claim: RetryAt",
            Self::Claim(ClaimAnswer::Replay(_)) => "claim: Replay",
            Self::Claim(ClaimAnswer::Mismatch) => "claim: Mismatch",
            Self::Claim(ClaimAnswer::InDoubt) => "claim: InDoubt",
            Self::Claim(ClaimAnswer::Exhausted { .. }) => "claim: Exhausted",
            Self::Renew(RenewAnswer::Held) => "renew: Held",
            Self::Renew(RenewAnswer::Lost) => "renew: Lost",
            Self::RecordStep(RecordStepAnswer::Recorded) => "record_step: Recorded",
            Self::RecordStep(RecordStepAnswer::Lost) => "record_step: Lost",
            Self::Complete(CompleteAnswer::Done) => "complete: Done",
            Self::Complete(CompleteAnswer::Lost) => "complete: Lost",
            Self::Release(ReleaseAnswer::Released) => "release: Released",
            Self::Release(ReleaseAnswer::InDoubt) => "release: InDoubt",
            Self::Release(ReleaseAnswer::Lost) => "release: Lost",
            Self::Resolve(ResolveAnswer::Resolved) => "resolve: Resolved",
            Self::Resolve(ResolveAnswer::NotInDoubt(_)) => "resolve: NotInDoubt",
            Self::Resolve(ResolveAnswer::Absent) => "resolve: Absent",
            Self::Forget(true) => "forget: there was one",
            Self::Forget(false) => "forget: there was none",
            Self::Get => "get",
            Self::Purge(0) => "purge: none",
            Self::Purge(_) => "purge: some",
        }
    }
}

/// An answer, and whether the record was written.
pub(super) struct Wanted {
    pub(super) answer: Answer,
    pub(super) wrote: bool,
}

/// The records as they must be.
pub(super) struct Oracle {
    records: HashMap<RecordKey, Record>,
    /// The highest fence of each key, also of records that are gone.
    floors: HashMap<RecordKey, Fence>,
    exact: bool,
    /// Now, as far as it is known: never before anything the store has dated.
    now: Timestamp,
}

impl Oracle {
    pub(super) fn new(exact: bool) -> Self {
        Self { records: HashMap::new(), floors: HashMap::new(), exact, now: Timestamp::default() }
    }

    const fn tolerance(&self) -> Duration {
        if self.exact { Duration::ZERO } else { TOLERANCE }
    }

    pub(super) fn record(&self, key: &RecordKey) -> Option<&Record> {
        self.records.get(key)
    }

    pub(super) fn live(&mut self, key: &RecordKey, now: Timestamp) -> Option<&Record> {
        let now = self.arrive(now);
        self.records.get(key).filter(|record| protocol::is_live(record, now))
    }

    /// Lets the time be this, or a little later if the store's clock is ahead.
    fn arrive(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    /// How long it is until something ends, for each that does.
    pub(super) fn edges(&self, now: Timestamp) -> Vec<Duration> {
        let mut edges: Vec<_> = self
            .records
            .values()
            .flat_map(times)
            .flatten()
            .map(|at| at.since(now))
            .filter(|left| !left.is_zero())
            .collect();
        // A map has no order, and the seed alone must decide.
        edges.sort_unstable();
        edges
    }

    pub(super) fn step(&mut self, key: &RecordKey, ask: &Ask, now: Timestamp) -> Wanted {
        let now = self.arrive(now);
        let record = self.records.get(key);
        let floor = self.floors.get(key).copied().unwrap_or_default();
        let (write, answer) = match ask {
            Ask::Claim(request) => {
                let step = protocol::claim(record, floor, request, now);
                (step.write, Answer::Claim(step.answer))
            }
            Ask::Renew(request) => {
                let step = protocol::renew(record, request, now);
                (step.write, Answer::Renew(step.answer))
            }
            Ask::RecordStep(request) => {
                let step = protocol::record_step(record, request, now);
                (step.write, Answer::RecordStep(step.answer))
            }
            Ask::Complete(request) => {
                let step = protocol::complete(record, request, now);
                (step.write, Answer::Complete(step.answer))
            }
            Ask::Release(request) => {
                let step = protocol::release(record, request, now);
                (step.write, Answer::Release(step.answer))
            }
            Ask::Resolve(word) => {
                let step = protocol::resolve(record, word, now);
                (step.write, Answer::Resolve(step.answer))
            }
            Ask::Forget => {
                let live = self.live(key, now).is_some();
                self.records.remove(key);
                (None, Answer::Forget(live))
            }
            Ask::Get => (None, Answer::Get),
            Ask::Purge(limit) => {
                let over = self.records.values().filter(|record| !protocol::is_live(record, now)).count();
                if self.exact && over <= *limit {
                    // None of them is there any more, so none can be deleted once more.
                    self.records.retain(|_, record| protocol::is_live(record, now));
                }
                (None, Answer::Purge(over.min(*limit)))
            }
        };
        let wrote = write.is_some();
        if let Some(record) = write {
            self.raise(key, record.fence);
            self.records.insert(key.clone(), record);
        }
        Wanted { answer, wrote }
    }

    fn raise(&mut self, key: &RecordKey, fence: Fence) {
        let floor = self.floors.entry(key.clone()).or_default();
        *floor = fence.max(*floor);
    }

    /// Takes a record as the store has it, with the times and the fence of its own clock.
    pub(super) fn adopt(&mut self, key: &RecordKey, record: Record) {
        self.raise(key, record.fence);
        let soon = self.now.after(self.tolerance());
        let dated = times(&record).into_iter().flatten().filter(|at| *at <= soon).max();
        self.arrive(dated.unwrap_or_default());
        self.records.insert(key.clone(), record);
    }

    /// Whether an answer is what it must be; adopts the fence of a new grant.
    pub(super) fn same_answer(&mut self, key: &RecordKey, given: &Answer, wanted: &Wanted) -> bool {
        let Wanted { answer: wanted, wrote } = wanted;
        match (given, wanted) {
            (Answer::Claim(ClaimAnswer::Granted(given)), Answer::Claim(ClaimAnswer::Granted(wanted))) => {
                let fence =
                    given.fence == wanted.fence || *wrote && self.same_fence(given.fence, wanted.fence);
                if let Some(record) = self.records.get_mut(key).filter(|_| fence) {
                    record.fence = given.fence;
                }
                self.raise(key, given.fence);
                let timeless =
                    |grant: &Grant| Grant { fence: Fence::default(), lease_left: Duration::ZERO, ..*grant };
                fence
                    && self.same_left(given.lease_left, wanted.lease_left)
                    && timeless(given) == timeless(wanted)
            }
            (
                Answer::Claim(ClaimAnswer::Busy { retry_after: given }),
                Answer::Claim(ClaimAnswer::Busy { retry_after: wanted }),
            )
            | (
                Answer::Claim(ClaimAnswer::RetryAt { retry_after: given }),
                Answer::Claim(ClaimAnswer::RetryAt { retry_after: wanted }),
            ) => self.same_left(*given, *wanted),
            (Answer::Claim(ClaimAnswer::Replay(given)), Answer::Claim(ClaimAnswer::Replay(wanted))) => {
                let timeless = |replay: &Replay| Replay {
                    completed_at: Timestamp::default(),
                    expires_at: replay.expires_at.map(|_| Timestamp::default()),
                    ..replay.clone()
                };
                let ends = given.expires_at.zip(wanted.expires_at);
                timeless(given) == timeless(wanted)
                    && close(given.completed_at, wanted.completed_at, self.tolerance())
                    && ends.is_none_or(|(given, wanted)| close(given, wanted, self.tolerance()))
            }
            (Answer::Purge(given), Answer::Purge(wanted)) => given <= wanted,
            _ => given == wanted,
        }
    }

    /// A store may keep one floor for many keys, so a fence may be higher than one key asks for; but
    /// not higher than any grant or the clock has it.
    fn same_fence(&self, given: Fence, wanted: Fence) -> bool {
        if !self.exact {
            // The oracle's is its own clock's; what it knows is that it rises.
            return close(
                Timestamp::from_micros(given.get()),
                Timestamp::from_micros(wanted.get()),
                TOLERANCE,
            );
        }
        let highest = self.floors.values().max().copied().unwrap_or_default();
        given >= wanted && given.get() <= highest.get().saturating_add(1).max(self.now.as_micros())
    }

    fn same_left(&self, given: Duration, wanted: Duration) -> bool {
        given.abs_diff(wanted) <= self.tolerance()
    }

    /// Compares a record with what it must be. What was not written must not have changed at all;
    /// of what was written, times may be off by what clocks may be, but for those that `old` had.
    pub(super) fn same_record(
        &self,
        seen: &Record,
        wanted: &Record,
        old: Option<&Record>,
        wrote: bool,
    ) -> Checked {
        if !wrote {
            return same("the record, which must not change", seen, wanted);
        }
        same("the record", timeless(seen), timeless(wanted))?;
        that(self.same_fence(seen.fence, wanted.fence), format!("the fence should be {}", wanted.fence))?;
        for (seen, wanted) in times(seen).into_iter().zip(times(wanted)) {
            let kept = old.is_some_and(|old| wanted.is_some() && times(old).contains(&wanted));
            let tolerance = if kept { Duration::ZERO } else { self.tolerance() };
            let (Some(seen), Some(wanted)) = (seen, wanted) else { continue };
            that(close(seen, wanted, tolerance), format!("a time should be {wanted:?} and is {seen:?}"))?;
        }
        Ok(())
    }
}

/// All times of a record.
fn times(record: &Record) -> [Option<Timestamp>; 5] {
    [
        Some(record.lease_until),
        Some(record.retry_at),
        Some(record.created_at),
        record.completed_at,
        record.expires_at,
    ]
}
