//! How long the writer waits for more operations before a commit.

use std::time::Duration;

/// The writer waits for expected operations for the duration of a commit divided by this number.
const PATIENCE: u32 = 4;
/// Upper limit of that wait.
const LONGEST_PATIENCE: Duration = Duration::from_millis(5);
/// The shortest useful wait: sleeping for a shorter time and waking up takes longer than that time.
const SHORTEST_PATIENCE: Duration = Duration::from_micros(50);

/// How long a transaction waits for operations that will probably come soon.
///
/// Callers usually send the next operation soon after an answer. If a transaction begins before that, it has few
/// operations, and the others wait for a whole commit. So the writer waits for as many operations as last time, for a
/// part of the time that a commit takes. If they do not come, little time is lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Pace {
    /// How many operations are expected.
    pub(crate) expected: usize,
    /// How long to wait for them.
    pub(crate) patience: Duration,
}

impl Pace {
    /// The pace after a commit that took this long, with this number of operations in it or waiting after it.
    pub(crate) fn after(commit: Duration, operations: usize) -> Self {
        let patience = (commit / PATIENCE).min(LONGEST_PATIENCE);
        let worth = patience >= SHORTEST_PATIENCE;
        Self { expected: operations, patience: if worth { patience } else { Duration::ZERO } }
    }
}
