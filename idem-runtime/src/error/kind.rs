//! The kinds of errors, and whether a retry may help for each.

use std::fmt;

use super::{Error, StepError};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident = $word:literal,)*) => {
        /// What kind of error an [`Error`] is: [`Error::kind`].
        ///
        /// Its name, from [`as_str`](Self::as_str) or `Display`, is stable: metrics and programs may store it.
        ///
        /// ```
        /// # use idem_runtime as idem;
        /// use idem::ErrorKind;
        ///
        /// fn status(error: &idem::Error) -> u16 {
        ///     match error.kind() {
        ///         ErrorKind::InFlight | ErrorKind::NotDue | ErrorKind::InDoubt => 409,
        ///         ErrorKind::Mismatch => 422,
        ///         ErrorKind::MissingKey | ErrorKind::InvalidKey => 400,
        ///         ErrorKind::Store => 503,
        ///         _ => 500,
        ///     }
        /// }
        /// assert_eq!(ErrorKind::InFlight.as_str(), "in_flight");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The stable name of the kind.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $word,)*
                }
            }
        }
    };
}

kinds! {
    /// [`Error::InFlight`].
    InFlight = "in_flight",
    /// [`Error::NotDue`].
    NotDue = "not_due",
    /// [`Error::Mismatch`].
    Mismatch = "mismatch",
    /// [`Error::InDoubt`].
    InDoubt = "in_doubt",
    /// [`Error::Exhausted`].
    Exhausted = "exhausted",
    /// [`Error::LeaseLost`].
    LeaseLost = "lease_lost",
    /// [`Error::TimedOut`].
    TimedOut = "timed_out",
    /// [`Error::NoTimeLeft`].
    NoTimeLeft = "no_time_left",
    /// [`Error::ResultNotStored`].
    ResultNotStored = "result_not_stored",
    /// [`Error::Undecodable`].
    Undecodable = "undecodable",
    /// [`Error::MissingKey`].
    MissingKey = "missing_key",
    /// [`Error::InvalidKey`].
    InvalidKey = "invalid_key",
    /// [`Error::Configuration`].
    Configuration = "configuration",
    /// [`Error::NotRecorded`].
    NotRecorded = "not_recorded",
    /// [`Error::Store`].
    Store = "store",
    /// [`StepError::Repeated`].
    StepRepeated = "step_repeated",
    /// [`StepError::Nested`].
    StepNested = "step_nested",
    /// [`StepError::Unprotected`].
    StepUnprotected = "step_unprotected",
    /// [`StepError::InputChanged`].
    StepInputChanged = "step_input_changed",
    /// [`StepError::Undecodable`].
    StepUndecodable = "step_undecodable",
    /// [`StepError::NotStored`].
    StepNotStored = "step_not_stored",
    /// [`StepError::Store`].
    StepStore = "step_store",
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<str> for ErrorKind {
    fn eq(&self, word: &str) -> bool {
        self.as_str() == word
    }
}

impl PartialEq<&str> for ErrorKind {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

impl Error {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::InFlight { .. } => ErrorKind::InFlight,
            Self::NotDue { .. } => ErrorKind::NotDue,
            Self::Mismatch { .. } => ErrorKind::Mismatch,
            Self::InDoubt { .. } => ErrorKind::InDoubt,
            Self::Exhausted { .. } => ErrorKind::Exhausted,
            Self::LeaseLost { .. } => ErrorKind::LeaseLost,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::NoTimeLeft { .. } => ErrorKind::NoTimeLeft,
            Self::ResultNotStored { .. } => ErrorKind::ResultNotStored,
            Self::Undecodable { .. } => ErrorKind::Undecodable,
            Self::MissingKey { .. } => ErrorKind::MissingKey,
            Self::InvalidKey { .. } => ErrorKind::InvalidKey,
            Self::Configuration { .. } => ErrorKind::Configuration,
            Self::NotRecorded { .. } => ErrorKind::NotRecorded,
            Self::Step { source, .. } => source.kind(),
            Self::Store { .. } => ErrorKind::Store,
        }
    }

    /// Whether the same call may succeed when it is made again, now or after
    /// [`retry_after`](Self::retry_after).
    ///
    /// It is `false` if the result stays the same until a person or a program changes something.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            // The body that holds the key waits for this call.
            Self::InFlight { reentrant, .. } => !*reentrant,
            Self::NotDue { .. }
            | Self::LeaseLost { .. }
            | Self::TimedOut { .. }
            | Self::NoTimeLeft { .. }
            | Self::NotRecorded { .. } => true,
            Self::Store { source, .. } | Self::Step { source: StepError::Store(source), .. } => {
                source.is_transient()
            }
            Self::Mismatch { .. }
            | Self::InDoubt { .. }
            | Self::Exhausted { .. }
            | Self::ResultNotStored { .. }
            | Self::Undecodable { .. }
            | Self::MissingKey { .. }
            | Self::InvalidKey { .. }
            | Self::Configuration { .. }
            | Self::Step { .. } => false,
        }
    }

    /// How long to wait before the same call may succeed, if that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<std::time::Duration> {
        match self {
            Self::InFlight { reentrant: false, retry_after, .. } | Self::NotDue { retry_after, .. } => {
                Some(*retry_after)
            }
            _ => None,
        }
    }
}

impl StepError {
    /// What kind of error it is.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Repeated => ErrorKind::StepRepeated,
            Self::Nested => ErrorKind::StepNested,
            Self::Unprotected => ErrorKind::StepUnprotected,
            Self::InputChanged => ErrorKind::StepInputChanged,
            Self::Undecodable { .. } => ErrorKind::StepUndecodable,
            Self::NotStored(_) => ErrorKind::StepNotStored,
            Self::Store(_) => ErrorKind::StepStore,
        }
    }
}
