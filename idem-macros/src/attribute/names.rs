//! The names of the options. The parser accepts no other name, and a test compares every table of options
//! with this list.

/// Every option, in the order of the documentation.
pub(crate) const NAMES: [&str; 21] = [
    "key",
    "store",
    "ttl",
    "lease",
    "scope",
    "fingerprint",
    "wait",
    "terminal",
    "on_crash",
    "recover",
    "max_attempts",
    "timeout",
    "retry_after",
    "record_if",
    "store_timeout",
    "key_fn",
    "fail_open",
    "detach",
    "missing_key",
    "transaction",
    "crate",
];
