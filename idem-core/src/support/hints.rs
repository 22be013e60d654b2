//! Remembers for which keys this process has seen a result. A claim on such a key first reads the record, which costs
//! the server less than a claim. A wrong hint costs one read and decides nothing.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::RecordKey;

/// How many keys are remembered. A newer key evicts an older one in the same slot.
const PLACES: usize = 8_192;

/// A fixed number of remembered keys, shared by all callers without a lock.
pub struct Hints {
    hasher: RandomState,
    places: Box<[AtomicU64]>,
}

/// A key's hash.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl Hints {
    /// Remembers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { hasher: RandomState::new(), places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }

    /// The mark of a key.
    #[must_use]
    pub fn mark(&self, key: &RecordKey) -> Mark {
        Mark(self.hasher.hash_one(key) | 1)
    }

    fn place(&self, mark: Mark) -> &AtomicU64 {
        // The lowest bit of a mark is always set, so it does not help to choose a slot.
        &self.places[usize::try_from((mark.0 >> 1) % PLACES as u64).unwrap_or(0)]
    }

    /// Whether the key with this mark probably has a result.
    #[must_use]
    pub fn has(&self, mark: Mark) -> bool {
        self.place(mark).load(Ordering::Relaxed) == mark.0
    }

    /// Remembers a key.
    pub fn put(&self, mark: Mark) {
        self.place(mark).store(mark.0, Ordering::Relaxed);
    }

    /// Forgets a key, if it is remembered.
    pub fn take(&self, mark: Mark) {
        let _ = self.place(mark).compare_exchange(mark.0, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

impl Default for Hints {
    fn default() -> Self {
        Self::new()
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
    use crate::key::{Key, Scope};

    #[test]
    fn a_key_is_remembered_until_it_is_taken_back() {
        let hints = Hints::new();
        let mark = |key: &str| hints.mark(&RecordKey::new(Scope::new("s").unwrap(), Key::new(key).unwrap()));
        assert!(!hints.has(mark("a")));
        hints.put(mark("a"));
        assert!(hints.has(mark("a")) && !hints.has(mark("b")));
        hints.take(mark("b"));
        assert!(hints.has(mark("a")));
        hints.take(mark("a"));
        assert!(!hints.has(mark("a")));
    }
}
