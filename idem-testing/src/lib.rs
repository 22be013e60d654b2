//! Tools to test idempotent functions and stores. A function must survive failures of its store and find its
//! records again. A store must keep the protocol.
//!
//! Owns the store that fails on purpose, the injuries, the repetitions of `twice`, the comparison of
//! catalogues, and the conformance checks of stores. Other crates use this crate only in tests. `idem`
//! re-exports it as `idem::testing`.

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
