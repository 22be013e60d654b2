//! The last phase: a result is recorded and returned to duplicates, or the claim is released.
//!
//! [`codec`] encodes results as bytes, and decodes them for duplicates. [`attempt`] is one attempt from its
//! grant to its end: it records its result, or ends by [`release`]. [`late`] records a result for which no
//! caller waits any more, and [`background`] counts such work.

pub(super) mod attempt;
pub(super) mod background;
pub(super) mod codec;
pub(super) mod late;
pub(super) mod release;
