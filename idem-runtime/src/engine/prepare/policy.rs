//! The policy of an operation: the settings that do not depend on the types of its results, and their check.
//!
//! The policy of an annotated function is a constant of its [`Site`](super::site::Site) as far as its values are literals,
//! so it is checked at compile time. A value that is computed makes a policy of one call, which is checked with the call.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::retry_pace::{RetryAfter, is_longer};
use idem_core::defaults::{self, LONGEST, SHORTEST_LEASE};
use idem_core::protocol::OnCrash;

/// The settings of an operation.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(crate) ttl: Duration,
    pub(crate) lease: Duration,
    pub(crate) wait: Duration,
    pub(crate) on_crash: OnCrash,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) fail_open: bool,
    pub(crate) store_timeout: Duration,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry_after: Option<RetryAfter>,
    /// Whether `recover` runs first if an earlier run began and did not end.
    pub(crate) recovers: bool,
}

/// The setters of constants. Those of [`Operation`](crate::Operation) say what they mean.
#[allow(missing_docs, reason = "as above")]
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

    #[must_use]
    pub const fn ttl(self, ttl: Duration) -> Self {
        Self { ttl, ..self }
    }

    #[must_use]
    pub const fn lease(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    #[must_use]
    pub const fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    #[must_use]
    pub const fn on_crash(self, on_crash: OnCrash) -> Self {
        Self { on_crash, ..self }
    }

    #[must_use]
    pub const fn max_attempts(self, attempts: u32) -> Self {
        Self { max_attempts: Some(attempts), ..self }
    }

    #[must_use]
    pub const fn fail_open(self) -> Self {
        Self { fail_open: true, ..self }
    }

    #[must_use]
    pub const fn store_timeout(self, store_timeout: Duration) -> Self {
        Self { store_timeout, ..self }
    }

    #[must_use]
    pub const fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// The key of a body that failed is due after `shortest`, or after a random time that grows to `longest`.
    #[must_use]
    pub const fn retry_after(self, shortest: Duration, longest: Option<Duration>) -> Self {
        Self { retry_after: Some(RetryAfter::new(shortest, longest)), ..self }
    }

    #[must_use]
    pub const fn recovering(self) -> Self {
        Self { recovers: true, ..self }
    }

    /// Whether calls of this operation may end a doubt about a key.
    pub(crate) fn may_end_doubt(&self) -> bool {
        self.recovers && self.on_crash == OnCrash::InDoubt
    }

    /// The limit of attempts. A limit of zero is a fault of the policy.
    pub(crate) fn attempts(&self) -> Option<NonZeroU32> {
        self.max_attempts.and_then(NonZeroU32::new)
    }

    /// What is wrong with the settings, if anything.
    pub(crate) const fn fault(&self) -> Option<&'static str> {
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
        if let Some(retry_after) = &self.retry_after
            && let Some(fault) = retry_after.fault()
        {
            return Some(fault);
        }
        if self.fail_open && matches!(self.on_crash, OnCrash::InDoubt) {
            return Some(
                "`fail_open` cannot go with `on_crash = \"in_doubt\"`: one runs the body without a claim, the other promises \
                 that it never starts twice",
            );
        }
        match self.max_attempts {
            Some(0) => Some("`max_attempts` must be at least 1"),
            _ => None,
        }
    }
}

/// The policy of an annotated function, or of an operation without one, with the values that were set at run time.
#[derive(Clone, Debug)]
pub(crate) struct SharedPolicy {
    checked: &'static CheckedPolicy,
    /// With the values that were set at run time, if there are any.
    own: Option<Arc<Policy>>,
}

/// A policy that was checked when it was made.
#[derive(Debug)]
pub(crate) struct CheckedPolicy {
    policy: Policy,
    fault: Option<&'static str>,
}

impl CheckedPolicy {
    pub(super) const fn new(policy: Policy) -> Self {
        let fault = policy.fault();
        Self { policy, fault }
    }
}

impl SharedPolicy {
    pub(super) const fn of(checked: &'static CheckedPolicy) -> Self {
        Self { checked, own: None }
    }

    /// The policy of an operation without a site.
    pub(super) const fn without_settings() -> Self {
        static WITHOUT_SETTINGS: CheckedPolicy = CheckedPolicy::new(Policy::new());
        Self::of(&WITHOUT_SETTINGS)
    }

    /// The policy, to be changed.
    pub(crate) fn to_mut(&mut self) -> &mut Policy {
        let checked = self.checked;
        Arc::make_mut(self.own.get_or_insert_with(|| Arc::new(checked.policy.clone())))
    }

    pub(super) fn fault(&self) -> Option<&'static str> {
        self.own.as_deref().map_or(self.checked.fault, Policy::fault)
    }
}

impl Deref for SharedPolicy {
    type Target = Policy;

    fn deref(&self) -> &Policy {
        self.own.as_deref().unwrap_or(&self.checked.policy)
    }
}
