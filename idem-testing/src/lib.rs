//! Tools for tests: of a function that must survive its store and find its records again, and of a store that must keep
//! the protocol.
//!
//! Owns what misbehaves on purpose and what judges a store from outside. It uses public items of the other crates
//! only (but for what `errors` is made of), and none of them knows it.

// Checks and factories panic as tests do; what a library user calls does not.

pub mod conformance;
pub mod errors;

mod catalogue;
mod fault;
mod injury;
mod seed;

pub use catalogue::{assert_catalogue, assert_catalogue_of, differences};
pub use conformance::differential;
pub use fault::{Fault, FaultStore, OperationKind, Rates};
#[doc(inline)]
pub use idem_macros::idempotent_test;
pub use injury::{Injury, Report, TestOutcome, Trial, TrialStore, injure};
pub use seed::seed;
