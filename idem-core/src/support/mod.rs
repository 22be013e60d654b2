//! What most stores need besides the protocol, for people who write a store.
//!
//! The stores of this library share these modules. No store has to use them to keep the contract. Each module says what
//! it is for.

pub mod hints;
pub mod network;
pub mod own_runtime;
pub mod retry;
pub mod step_bytes;

pub use crate::key::framed_digest;
