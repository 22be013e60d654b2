//! Limits and defaults of the runtime that compile-time checks need. They are copies, because a macro cannot
//! depend on the crates that its output calls; a test of the workspace compares them with the runtime's.

use std::time::Duration;

/// The default lease.
pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest scope.
pub(crate) const MAX_SCOPE_BYTES: usize = 512;

/// The longest duration of any option, in milliseconds: a hundred years of 365.25 days.
pub(crate) const MAX_DURATION_MILLIS: u64 = 36_525 * 86_400_000;
