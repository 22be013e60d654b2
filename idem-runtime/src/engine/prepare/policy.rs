//! The policy of an operation: the settings that do not depend on the types of its results, their check, and
//! when the next attempt is due.
//!
//! The literal values in a function's attribute form a policy that is a constant of its
//! [`Site`](super::Site), so they are checked at compile time. If a value is computed, each call has a policy
//! of its own, which is checked with the call.

use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use idem_core::defaults::{self, LONGEST, SHORTEST_LEASE};
use idem_core::protocol::OnCrash;

/// The settings of an operation. The setters of [`Operation`](crate::Operation) explain them.
#[allow(missing_docs, reason = "as above")]
#[derive(Clone, Debug)]
pub struct Policy {
    pub ttl: Duration,
    pub lease: Duration,
    pub wait: Duration,
    pub on_crash: OnCrash,
    pub max_attempts: Option<u32>,
    pub fail_open: bool,
    pub store_timeout: Duration,
    pub timeout: Option<Duration>,
    pub retry_after: Option<RetryAfter>,
    /// Whether `recover` runs first if an earlier run began and did not end.
    pub recovers: bool,
}

impl Policy {
    /// The policy of an operation with no settings.
    #[expect(clippy::new_without_default, reason = "generated code needs a constant")]
    #[must_use]
    pub const fn new() -> Self {
        Self {
            ttl: defaults::TTL,
            lease: defaults::LEASE,
            wait: Duration::ZERO,
            on_crash: OnCrash::Rerun,
            max_attempts: None,
            fail_open: false,
            store_timeout: defaults::STORE_TIMEOUT,
            timeout: None,
            retry_after: None,
            recovers: false,
        }
    }

    /// What is wrong with the settings, if anything.
    pub(super) const fn fault(&self) -> Option<&'static str> {
        if self.ttl.is_zero() || is_longer(self.ttl, LONGEST) {
            return Some("the ttl must be more than zero and at most 100 years");
        }
        if is_longer(SHORTEST_LEASE, self.lease) || is_longer(self.lease, LONGEST) {
            return Some("the lease must be at least 1 ms and at most 100 years");
        }
        if is_longer(self.wait, LONGEST) {
            return Some("the wait must be at most 100 years");
        }
        if self.store_timeout.is_zero() || is_longer(self.store_timeout, LONGEST) {
            return Some("the store timeout must be more than zero and at most 100 years");
        }
        if let Some(timeout) = self.timeout
            && (timeout.is_zero() || is_longer(timeout, LONGEST))
        {
            return Some("the timeout must be more than zero and at most 100 years");
        }
        if self.fail_open && matches!(self.on_crash, OnCrash::InDoubt) {
            return Some(
                "`fail_open` cannot go with `on_crash = \"in_doubt\"`: one runs the body without a claim, the other promises \
                 that it never starts twice",
            );
        }
        match (self.max_attempts, &self.retry_after) {
            (Some(0), _) => Some("`max_attempts` must be at least 1"),
            (_, Some(retry_after)) => retry_after.fault(),
            _ => None,
        }
    }
}

/// The policy of an operation. It starts as the constant policy of a [`Site`](super::Site), and without
/// a site as the default policy. The first setter makes a copy. This and all later setters change the copy.
#[derive(Clone, Debug)]
pub(crate) struct SharedPolicy {
    pub(super) site: &'static Policy,
    /// What is wrong with the policy of the site.
    pub(super) fault: Option<&'static str>,
    /// The policy with the values that were set at run time; `None` if none were set.
    pub(super) own: Option<Arc<Policy>>,
}

impl SharedPolicy {
    /// The policy of an operation without a site.
    pub(super) const fn without_settings() -> Self {
        static WITHOUT_SETTINGS: Policy = Policy::new();
        Self { site: &WITHOUT_SETTINGS, fault: None, own: None }
    }

    /// The policy, for a setter to change.
    pub(crate) fn to_mut(&mut self) -> &mut Policy {
        Arc::make_mut(self.own.get_or_insert_with(|| Arc::new(self.site.clone())))
    }
}

impl Deref for SharedPolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.own.as_deref().unwrap_or(self.site)
    }
}

/// When a key whose body failed is due again: see [`Operation::retry_after`](crate::Operation::retry_after).
///
/// | made from | due after |
/// |---|---|
/// | a `Duration` | that time, after every attempt |
/// | a range `shortest..longest` | `shortest` after the first attempt. Each further attempt doubles the upper limit, up to `longest`. The time is random, from half of that limit (or `shortest`, if that is longer) to the limit |
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
    /// The range `shortest..longest`, or without `longest` the time `shortest` after every attempt.
    #[doc(hidden)]
    #[must_use]
    pub const fn between(shortest: Duration, longest: Option<Duration>) -> Self {
        Self { shortest, longest }
    }

    /// The delay after the attempt with this number, from 1. With a range, each call returns another random
    /// value, except for the first attempt.
    #[must_use]
    pub fn delay(&self, attempt: u32) -> Duration {
        let Some(longest) = self.longest else { return self.shortest };
        let doubled = 2_u32.checked_pow(attempt.saturating_sub(1));
        let upper =
            doubled.and_then(|times| self.shortest.checked_mul(times)).unwrap_or(longest).min(longest);
        let lower = self.shortest.max(upper / 2).min(upper);
        lower + (upper - lower).mul_f64(fastrand::f64())
    }

    const fn fault(&self) -> Option<&'static str> {
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

/// `one > other`. A `const fn` cannot use this operator on durations.
const fn is_longer(one: Duration, other: Duration) -> bool {
    one.as_nanos() > other.as_nanos()
}
