//! When the next attempt is due.

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use idem_core::defaults::LONGEST;

/// When a key whose body failed is due again: see [`Operation::retry_after`](crate::Operation::retry_after).
///
/// | made from | due after |
/// |---|---|
/// | a `Duration` | that time, after every attempt |
/// | a range of two, `shortest..longest` | the shortest time after the first attempt, twice as long after each further one, up to the longest; the upper half of each at random |
///
/// ```
/// # use idem_runtime as idem;
/// use std::time::Duration;
/// use idem::RetryAfter;
///
/// let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
/// assert_eq!(RetryAfter::from(second).delay(7), second);
/// let backoff = RetryAfter::from(second..minute);
/// assert_eq!(backoff.delay(1), second);
/// assert!((2 * second..=4 * second).contains(&backoff.delay(3)));
/// assert!((minute / 2..=minute).contains(&backoff.delay(100)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter {
    shortest: Duration,
    /// `None` for the same delay after every attempt.
    longest: Option<Duration>,
}

impl RetryAfter {
    /// The delay after this attempt, from 1. With a range, each call returns another random value.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        let Some(longest) = self.longest else { return self.shortest };
        let doubled = 2_u32.checked_pow(attempt.saturating_sub(1));
        let upper =
            doubled.and_then(|times| self.shortest.checked_mul(times)).unwrap_or(longest).min(longest);
        let lower = self.shortest.max(upper / 2).min(upper);
        lower + (upper - lower).mul_f64(fastrand::f64())
    }

    pub(super) const fn new(shortest: Duration, longest: Option<Duration>) -> Self {
        Self { shortest, longest }
    }

    pub(super) const fn fault(&self) -> Option<&'static str> {
        let longest = match self.longest {
            Some(longest) if is_longer(self.shortest, longest) => {
                return Some("the range of `retry_after` must begin with the shorter time");
            }
            Some(longest) => longest,
            None => self.shortest,
        };
        if is_longer(longest, LONGEST) { Some("`retry_after` must be at most 100 years") } else { None }
    }
}

impl From<Duration> for RetryAfter {
    fn from(always: Duration) -> Self {
        Self { shortest: always, longest: None }
    }
}

impl From<Range<Duration>> for RetryAfter {
    fn from(range: Range<Duration>) -> Self {
        Self { shortest: range.start, longest: Some(range.end) }
    }
}

impl From<RangeInclusive<Duration>> for RetryAfter {
    fn from(range: RangeInclusive<Duration>) -> Self {
        let (shortest, longest) = range.into_inner();
        Self { shortest, longest: Some(longest) }
    }
}

/// Comparison of durations in a constant.
pub(super) const fn is_longer(one: Duration, other: Duration) -> bool {
    one.as_nanos() > other.as_nanos()
}
