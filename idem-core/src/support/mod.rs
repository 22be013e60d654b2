//! What most stores need beside the protocol, for people who write one.
//!
//! Nothing here is needed to keep the contract; all of it is what the stores of this library share. Each module
//! says what it is for. A store that has its own way needs none of them.

pub mod hints;
pub mod own_runtime;
pub mod retry;
pub mod step_bytes;

pub use crate::key::framed_digest;
