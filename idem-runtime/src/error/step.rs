//! Why a step of a body has no value.

use std::sync::Arc;

use super::{NotStored, StoreError};

/// Why a step has no value: the source of [`Error::Step`](super::Error::Step).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// This run of the body already has a step with this name. The second step did not run.
    #[error(
        "this run has a step of that name; give each its own, in a loop by an index: `(\"line\", index)`"
    )]
    Repeated,
    /// The step is inside another step or in a `recover` function. The step did not run.
    #[error("a step cannot stand inside another nor in `recover`; begin it in the body itself")]
    Nested,
    /// The step is in a call with `transaction`, which records no steps. The step did not run.
    #[error(
        "a call in a transaction records no steps: what is not committed did not happen; call the closure itself, \
         or make the step in a call without `transaction`"
    )]
    Unprotected,
    /// An earlier run recorded the step for another input. The step did not run again.
    #[error(
        "an earlier run recorded it for another input; the body must give it the same at each run, or forget the key"
    )]
    InputChanged,
    /// The step has run before, and its recorded value does not decode into this type. The value stays
    /// recorded, and the step will not run again.
    #[error(
        "it has run, but its recorded value does not decode into this type ({reason}); it is kept and will not run \
         again: read it as the type that was recorded"
    )]
    Undecodable {
        /// What does not decode, and where, without the value.
        reason: Arc<str>,
    },
    /// The step has run before, and its value is not in the store. The step will not run again.
    #[error(
        "it has run, and its value is not stored ({0}); it will not run again: look up what it did, or forget the key"
    )]
    NotStored(NotStored),
    /// The store failed. If the step itself has run, its value may be recorded or not. If it is not recorded,
    /// the next run of the body runs the step again.
    #[error("{0}; end the body with this error, and call again")]
    Store(#[source] StoreError),
}
