//! The engine of `idem`. Use the crate `idem-rs`, which re-exports it, because paths in this crate may change
//! between any two versions.

#![cfg_attr(docsrs, feature(doc_cfg))]
// Only tests, examples and benches may panic or print.
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, clippy::print_stderr)]

mod catalogue;
mod engine;
mod error;
mod expansion;
mod fingerprint;
pub mod observer;
#[cfg(feature = "problem")]
pub mod problem;
mod store;
#[cfg(feature = "signal")]
mod terminated;

#[cfg(feature = "catalogue")]
pub use catalogue::catalogue;
pub use catalogue::{Catalogue, CatalogueError, CatalogueKeyPart, CatalogueOperation};
pub use engine::{
    Attempt, Begun, Context, Drained, Interrupted, LateRecording, MAX_STEP_NAME_BYTES, Observed, Operation,
    Outcome, Recovery, Replayed, ResultRules, RetryAfter, RulesFor, Step, StepName, Unrecorded, WithRecover,
    context, drain, observe, step, with_deadline,
};
pub use error::{CallId, Error, ErrorKind, Loss, NotStored, StepError};
pub use store::{Disabled, DynStore, MemoryStore};
#[cfg(feature = "signal")]
pub use terminated::terminated;

#[doc(no_inline)]
pub use idem_core::*;

/// The functions that generated code calls. Not a public interface.
#[doc(hidden)]
pub mod __private {
    pub use crate::expansion::*;

    #[cfg(feature = "catalogue")]
    pub use crate::__idem_register as register;
    #[cfg(feature = "catalogue")]
    pub use crate::catalogue::{IDEM_REGISTERED_1, Registered};
    #[cfg(feature = "catalogue")]
    pub use linkme;
}

/// What a simulation of several workers in one program needs. Not a public interface.
#[doc(hidden)]
pub mod __simulation {
    pub use crate::engine::Process;
}
