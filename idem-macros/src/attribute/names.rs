//! The names of the options, once: the parser knows no other, and a test holds every table of options to them.

/// Every option, in the order of the documentation.
pub(crate) const NAMES: [&str; 24] = [
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
    "steps",
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
