//! Which requests are guarded.
//!
//! Owns the default rule. Knows nothing about how a key is written.

use http::Method;
use http::request::Parts;

/// Whether a request is guarded: see [`Builder::guard`](super::Builder::guard).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Guard {
    /// The request goes to its handler unchanged, with or without a key.
    Unguarded,
    /// The request is guarded if it has a key. Otherwise it goes to its handler unchanged.
    Optional,
    /// The request is guarded, and is refused if it has no key. `"abc"` and `abc` are the same key.
    Required,
    /// As [`Required`](Self::Required), but the key must be in double quotes, as the draft requires.
    Quoted,
}

impl Guard {
    /// The default: `POST` and `PATCH` need a key, and all other requests are unguarded.
    pub(super) fn of_writes(head: &Parts) -> Self {
        if matches!(head.method, Method::POST | Method::PATCH) { Self::Required } else { Self::Unguarded }
    }
}
