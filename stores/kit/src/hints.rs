//! Remembers the keys for which this process has seen a result. Also estimates how many of the other claimed
//! keys already have a result. Such a result is probably from another process. If a key probably has a
//! result, a claim first reads the record, because a read costs the server less than a claim. A wrong hint
//! costs time, but never changes an answer.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use idem_core::RecordKey;
use idem_core::protocol::{Answer, ClaimAnswer, CompleteAnswer};

/// How many keys are remembered at most.
const PLACES: usize = 8_192;
/// How many positions a key may have. With only one, more than fifty of a thousand keys would take the
/// position of another key.
const CHOICES: usize = 4;

/// The value of `unseen_with_result` if all keys have a result.
const ALL: u32 = 256;
/// For each claimed key that is not remembered, `unseen_with_result` moves towards [`ALL`] if the key has a
/// result, otherwise towards 0. It moves by the distance divided by this number. So after at most six such
/// keys in a row with a result, `expects_result` returns `true` for other such keys. After six without a
/// result, it returns `false`.
const WEIGHT: u32 = 8;

/// A fixed number of remembered keys, shared by all callers without a lock.
pub struct Hints {
    hasher: RandomState,
    places: Box<[AtomicU64]>,
    /// The share of keys with a result, among the recent keys that were not remembered; [`ALL`] means all.
    unseen_with_result: AtomicU32,
}

/// A key's hash.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Hints {
    /// The mark of a key.
    #[must_use]
    pub fn mark(&self, key: &RecordKey) -> Mark {
        Mark(self.hasher.hash_one(key) | 1)
    }

    /// The positions that the key with this mark may have.
    fn choices(&self, mark: Mark) -> &[AtomicU64] {
        // The lowest bit of a mark is always set, so it does not help to choose the group.
        let group = (mark.0 >> 1) % (PLACES / CHOICES) as u64;
        let first = usize::try_from(group).unwrap_or(0) * CHOICES;
        &self.places[first..first + CHOICES]
    }

    /// Whether the key with this mark probably has a result.
    #[must_use]
    pub fn has(&self, mark: Mark) -> bool {
        self.choices(mark).iter().any(|place| place.load(Ordering::Relaxed) == mark.0)
    }

    /// Whether a claim on the key with this mark should read the record first. It should if the key is
    /// remembered, or if most of the recent keys that were not remembered had a result.
    #[cfg(any(test, feature = "cas", feature = "sql"))]
    pub(crate) fn expects_result(&self, mark: Mark) -> bool {
        self.unseen_with_result.load(Ordering::Relaxed) > ALL / 2 || self.has(mark)
    }

    /// Notes what the answer to a request shows: whether the key has a result.
    pub fn saw(&self, mark: Mark, answer: &Answer) {
        match answer {
            Answer::Claim(answer) => self.claimed(mark, matches!(answer, ClaimAnswer::Replay(_))),
            Answer::Complete(CompleteAnswer::Done) => self.put(mark),
            _ => {}
        }
    }

    /// Notes whether a claim on the key found a result.
    fn claimed(&self, mark: Mark, has_result: bool) {
        if !self.has(mark) {
            // If two threads do this at the same moment, their two keys may count as one.
            let share = self.unseen_with_result.load(Ordering::Relaxed);
            let share = if has_result { share + (ALL - share) / WEIGHT } else { share - share / WEIGHT };
            self.unseen_with_result.store(share, Ordering::Relaxed);
        }
        if has_result { self.put(mark) } else { self.take(mark) }
    }

    /// Remembers a key. If none of its positions is free, this key replaces the key in one of them.
    pub fn put(&self, mark: Mark) {
        if self.has(mark) {
            return;
        }
        let choices = self.choices(mark);
        let free = choices.iter().find(|place| place.load(Ordering::Relaxed) == 0);
        // Uses the high bits, because the low bits chose the group.
        let any = usize::try_from(mark.0 >> 32).unwrap_or(0) % CHOICES;
        free.unwrap_or(&choices[any]).store(mark.0, Ordering::Relaxed);
    }

    /// Forgets a key, if it is remembered.
    fn take(&self, mark: Mark) {
        for place in self.choices(mark) {
            let _ = place.compare_exchange(mark.0, 0, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

impl Default for Hints {
    fn default() -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), places, unseen_with_result: AtomicU32::new(0) }
    }
}

impl fmt::Debug for Hints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hints")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use idem_core::{Key, Scope};

    #[test]
    fn where_most_unseen_keys_have_a_result_the_next_is_expected_to_have_one() {
        let hints = Hints::default();
        let mark = |key: u32| {
            hints.mark(&RecordKey::new(Scope::new("s").unwrap(), Key::new(key.to_string()).unwrap()))
        };
        // New keys. One of them gets a result, and a hundred duplicates of it follow.
        (0..100).for_each(|key| hints.claimed(mark(key), false));
        hints.claimed(mark(7), true);
        (0..100).for_each(|_| hints.claimed(mark(7), true));
        assert!(hints.expects_result(mark(7)) && !hints.expects_result(mark(1_000)));
        // Keys that another process handled.
        (100..110).for_each(|key| hints.claimed(mark(key), true));
        assert!(hints.expects_result(mark(1_000)));
        // New keys again.
        (200..210).for_each(|key| hints.claimed(mark(key), false));
        assert!(!hints.expects_result(mark(1_000)) && hints.expects_result(mark(100)));
    }

    #[test]
    fn a_thousand_keys_are_remembered_beside_each_other() {
        let hints = Hints::default();
        let marks: Vec<_> = (0..1_000)
            .map(|key: u32| {
                hints.mark(&RecordKey::new(Scope::new("s").unwrap(), Key::new(key.to_string()).unwrap()))
            })
            .collect();
        // Puts each key twice, so that a key that lost its position takes the position of another key.
        marks.iter().chain(&marks).for_each(|mark| hints.put(*mark));
        let forgotten = marks.iter().filter(|mark| !hints.has(**mark)).count();
        assert!(forgotten < 10, "{forgotten}");
    }
}
