//! The last phase: a result is recorded and returned to duplicates, or the claim is released.
//!
//! [`codec`] and [`encoding`] make bytes of results and results of bytes, also for duplicates. [`attempt`] is
//! one attempt from its grant to its end: it ends by [`complete`] or [`release`], also after its caller has
//! gone ([`background`]).

pub(super) mod attempt;
pub(super) mod background;
pub(super) mod codec;
pub(super) mod complete;
pub(super) mod encoding;
pub(super) mod release;
