//! The clock for leases and expiry: the system clock of the file's host, which all processes share.

use std::time::SystemTime;

use idem_core::protocol::Timestamp;

/// The time of that clock.
pub(super) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
