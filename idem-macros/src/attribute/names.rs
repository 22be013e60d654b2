//! The names of the options, in one place: the parser accepts no other name, and a test compares every table of options
//! with them.

/// Every option, in the order of the documentation.
pub(crate) const NAMES: [&str; 23] = [
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
    "max_result_bytes",
    "timeout",
    "retry_after",
    "record_if",
    "upgrade",
    "store_timeout",
    "key_fn",
    "fail_open",
    "detach",
    "missing_key",
    "transaction",
    "crate",
];
