//! The last phase: a result is recorded and returned to duplicates, or the claim is released.
//!
//! [`codec`] and [`encoding`] make bytes of results and results of bytes, for the types of [`returns`]. [`attempt`] is one
//! attempt from its grant to its end: it ends by [`complete`] or [`release`], also after its caller has gone
//! ([`late`], [`late_recording`], [`background`]). [`replay`] returns a recorded result.

pub(super) mod attempt;
pub(super) mod background;
pub(super) mod codec;
pub(super) mod complete;
pub(super) mod encoding;
pub(super) mod late;
pub(super) mod late_recording;
pub(super) mod release;
pub(super) mod replay;
pub(super) mod returns;
