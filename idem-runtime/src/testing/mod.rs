//! Tools for tests: of a function that must survive its store, and of a store that must keep the
//! protocol.
//!
//! Owns what misbehaves on purpose and what judges a store from outside. It uses the public face
//! of the runtime only, and nothing in the runtime knows it.

pub mod conformance;

mod fault;
mod seed;

pub use conformance::differential;
pub use fault::{Fault, FaultStore, OperationKind, Rates};
pub use seed::seed;

#[doc(inline)]
pub use crate::conformance_suite;
