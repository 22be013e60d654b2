//! Copies of limits and defaults of the runtime, for checks at compile time. This crate needs copies because
//! it does not depend on the runtime. A test of the workspace compares the copies with the originals.

use std::time::Duration;

pub(crate) const DEFAULT_LEASE: Duration = Duration::from_secs(30);

pub(crate) const MAX_SCOPE_BYTES: usize = 512;

/// The longest duration of any option, in milliseconds: a hundred years of 365.25 days.
pub(crate) const MAX_DURATION_MILLIS: u64 = 36_525 * 86_400_000;
