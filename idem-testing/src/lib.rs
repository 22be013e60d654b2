//! Tools for two kinds of tests: of idempotent functions, which must survive failures of their store and find
//! their records again, and of stores, which must keep the protocol.
//!
//! Owns the store that fails on purpose, and the checks of a store from outside. It uses only public items of
//! the other crates (except in `errors`). No other crate knows this crate.

pub mod conformance;
pub mod errors;

mod catalogue;
mod fault;
mod injury;
mod seed;
mod twice;

pub use catalogue::{assert_catalogue, assert_catalogue_of, differences};
pub use fault::{Fault, FaultStore, OperationKind, Rates};
#[doc(inline)]
pub use idem_macros::idempotent_test;
pub use injury::{Injury, Report, TestOutcome, Trial, TrialStore, injure};
pub use seed::seed;
#[cfg(feature = "tonic")]
pub use twice::Grpc;
pub use twice::{Twice, twice};
