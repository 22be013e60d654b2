//! The defaults and bounds of an operation's options. The engine uses these values, and tests compare the
//! documentation with them.

use std::time::Duration;

/// How long a result is kept, from completion: 24 hours.
pub const TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long a claim lasts without a renewal: 30 seconds.
pub const LEASE: Duration = Duration::from_secs(30);

/// How long one operation of the store may take before the engine treats it as failed: 10 seconds.
pub const STORE_TIMEOUT: Duration = Duration::from_secs(10);

/// The shortest lease: 1 ms. With a shorter lease, a process would do nothing but renew.
pub const SHORTEST_LEASE: Duration = Duration::from_millis(1);

/// The longest time that any option accepts: 100 years.
pub const LONGEST: Duration = Duration::from_secs((100 * 365 + 25) * 24 * 60 * 60);
