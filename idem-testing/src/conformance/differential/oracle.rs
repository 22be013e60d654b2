//! Computes the expected answers with the protocol's functions, on records in a map.

use std::collections::HashMap;
use std::time::Duration;

use super::asking::{Answer, Ask};
use crate::conformance::trial::{Checked, same, that};
use idem_core::RecordKey;
use idem_core::protocol::{self, ClaimAnswer, Fence, Grant, Record, Timestamp};

/// How much the store's real clock may differ from the test's clock.
const TOLERANCE: Duration = Duration::from_secs(60);

pub(super) struct Wanted {
    pub(super) answer: Answer,
    pub(super) wrote: bool,
}

/// The expected records.
#[derive(Clone)]
pub(super) struct Oracle {
    records: HashMap<RecordKey, Record>,
    /// The highest fence of each key, also of deleted records.
    floors: HashMap<RecordKey, Fence>,
    exact: bool,
    /// The latest time that is known: the test's own time, or a later time in an adopted record, because the
    /// store's real clock may be ahead. A time that is ahead by more than `tolerance()` does not count: it
    /// is the end of a lease, of a lifetime or of a backoff.
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

    fn arrive(&mut self, now: Timestamp) -> Timestamp {
        self.now = self.now.max(now);
        self.now
    }

    /// The durations until the future times in the records.
    pub(super) fn edges(&self, now: Timestamp) -> Vec<Duration> {
        let mut edges: Vec<_> = self
            .records
            .values()
            .flat_map(times)
            .flatten()
            .map(|at| at.since(now))
            .filter(|left| !left.is_zero())
            .collect();
        // Sorted, because the order of a map is random, and only the seed may decide what happens.
        edges.sort_unstable();
        edges
    }

    pub(super) fn step(&mut self, key: &RecordKey, ask: &Ask, now: Timestamp) -> Wanted {
        let now = self.arrive(now);
        let record = self.records.get(key);
        let floor = self.floors.get(key).copied().unwrap_or_default();
        let (write, answer) = match ask {
            Ask::Step(request) => {
                let step = protocol::apply(record, floor, request, now);
                (step.write, Answer::Step(step.answer))
            }
            Ask::Forget => {
                let live = self.live(key, now).is_some();
                self.records.remove(key);
                (None, Answer::Forget(live))
            }
            Ask::Purge(limit) => {
                let over = self.records.values().filter(|record| !protocol::is_live(record, now)).count();
                if self.exact && over <= *limit {
                    // The store's purge has deleted all of these records, so the oracle drops them too.
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

    /// Replaces the expected record by the store's record, with the times and the fence of the store's clock.
    pub(super) fn adopt(&mut self, key: &RecordKey, record: Record) {
        self.raise(key, record.fence);
        let soon = self.now.after(self.tolerance());
        let dated = times(&record).into_iter().flatten().filter(|at| *at <= soon).max();
        self.arrive(dated.unwrap_or_default());
        self.records.insert(key.clone(), record);
    }

    /// Whether an answer is the expected one. Adopts the fence of a new grant.
    pub(super) fn same_answer(&mut self, key: &RecordKey, given: &Answer, wanted: &Wanted) -> bool {
        let Wanted { answer: wanted, wrote } = wanted;
        match (given, wanted) {
            (Answer::Step(protocol::Answer::Claim(given)), Answer::Step(protocol::Answer::Claim(wanted))) => {
                self.same_claim(key, given, wanted, *wrote)
            }
            (Answer::Purge(given), Answer::Purge(wanted)) => given <= wanted,
            _ => given == wanted,
        }
    }

    fn same_claim(
        &mut self,
        key: &RecordKey,
        given: &ClaimAnswer,
        wanted: &ClaimAnswer,
        wrote: bool,
    ) -> bool {
        match (given, wanted) {
            (ClaimAnswer::Granted(given), ClaimAnswer::Granted(wanted)) => {
                let fence =
                    given.fence == wanted.fence || wrote && self.same_fence(given.fence, wanted.fence);
                if let Some(record) = self.records.get_mut(key).filter(|_| fence) {
                    record.fence = given.fence;
                }
                self.raise(key, given.fence);
                let timeless =
                    |grant: &Grant| (*grant).with_fence(Fence::default()).with_lease_left(Duration::ZERO);
                fence
                    && self.same_left(given.lease_left, wanted.lease_left)
                    && timeless(given) == timeless(wanted)
            }
            (ClaimAnswer::Busy { retry_after: given }, ClaimAnswer::Busy { retry_after: wanted })
            | (ClaimAnswer::RetryAt { retry_after: given }, ClaimAnswer::RetryAt { retry_after: wanted }) => {
                self.same_left(*given, *wanted)
            }
            // The oracle has adopted the record from the store, so even the times in a replay must be equal.
            _ => given == wanted,
        }
    }

    /// Whether a store may give the fence `given` if `wanted` is expected. A store may keep one floor (the
    /// highest fence so far) for many keys, so its fence may be higher than the key requires. The limit is
    /// the clock's time or one more than the highest fence, whichever is higher.
    fn same_fence(&self, given: Fence, wanted: Fence) -> bool {
        if !self.exact {
            // The oracle's fence comes from another clock than the store's, so the two fences are only close.
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

    /// Compares a record with the expected one. A record that was not written must be equal. In a written
    /// record, new times may differ as much as the clocks do, and times that `old` already had must be equal.
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
        // If the expected fence is the old fence or one more, it does not come from the clock. So the store's
        // fence must be equal to it.
        let is_counted = old.is_some_and(|old| wanted.fence.get() <= old.fence.get().saturating_add(1));
        let fence =
            if is_counted { seen.fence == wanted.fence } else { self.same_fence(seen.fence, wanted.fence) };
        let rises = old.is_none_or(|old| seen.fence > old.fence || wanted.fence == old.fence);
        that(fence && rises, format!("the fence should be {}, and is {}", wanted.fence, seen.fence))?;
        for (seen, wanted) in times(seen).into_iter().zip(times(wanted)) {
            let kept = old.is_some_and(|old| wanted.is_some() && times(old).contains(&wanted));
            let tolerance = if kept { Duration::ZERO } else { self.tolerance() };
            let (Some(seen), Some(wanted)) = (seen, wanted) else { continue };
            that(close(seen, wanted, tolerance), format!("a time should be {wanted:?} and is {seen:?}"))?;
        }
        Ok(())
    }
}

fn times(record: &Record) -> [Option<Timestamp>; 5] {
    [
        Some(record.lease_until),
        Some(record.retry_at),
        Some(record.created_at),
        record.completed_at,
        record.expires_at,
    ]
}

/// Whether two times are equal within the tolerance.
fn close(got: Timestamp, wanted: Timestamp, tolerance: Duration) -> bool {
    got.since(wanted) <= tolerance && wanted.since(got) <= tolerance
}

/// The record without its times and its fence, for comparison.
pub(super) fn timeless(record: &Record) -> Record {
    let zero = Timestamp::default();
    record
        .clone()
        .with_lease_until(zero)
        .with_retry_at(zero)
        .with_created_at(zero)
        .with_completed_at(record.completed_at.map(|_| zero))
        .with_expires_at(record.expires_at.map(|_| zero))
        .with_fence(idem_core::protocol::Fence::default())
}
