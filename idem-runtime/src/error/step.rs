//! Why a step of a body gave no value of its own.

use super::{NotStored, StoreError};

/// Why a step gave no value: the source of [`Error::Step`](super::Error::Step).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// This run of the body has a step of this name already. It did not run.
    #[error(
        "this run has a step of that name; give each its own, in a loop by an index: `(\"line\", index)`"
    )]
    Repeated,
    /// It stands inside another step, or in a `recover` function. It did not run.
    #[error("a step cannot stand inside another nor in `recover`; begin it in the body itself")]
    Nested,
    /// An earlier run recorded it for another input. It did not run.
    #[error(
        "an earlier run recorded it for another input; the body must give it the same at each run, or forget the key"
    )]
    InputChanged,
    /// It has run, and what was recorded does not decode into the type that is asked for. It is kept and
    /// the step will not run again.
    #[error(
        "it has run, but its recorded value does not decode into this type; it is kept and will not run again"
    )]
    Undecodable,
    /// It has run in an earlier run, and its value is not in the store. It will not run again.
    #[error("it has run, and its value is not stored ({0}); it will not run again")]
    NotStored(NotStored),
    /// The store failed. Where the step itself has run, it is not known whether that is recorded: the next
    /// run of the body may run it again.
    #[error("{0}; end the body with this error, and call again")]
    Store(#[source] StoreError),
}

impl StepError {
    /// A stable word for it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Repeated => "step_repeated",
            Self::Nested => "step_nested",
            Self::InputChanged => "step_input_changed",
            Self::Undecodable => "step_undecodable",
            Self::NotStored(_) => "step_not_stored",
            Self::Store(_) => "step_store",
        }
    }
}
