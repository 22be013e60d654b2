//! The kinds of errors, and whether a retry may help for each.

use std::fmt;

use super::{Error, StepError};

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident = $word:literal for $error:pat,)*) => {
        /// What kind of error an [`Error`] is: [`Error::kind`].
        ///
        /// The name of a kind, from [`as_str`](Self::as_str) or `Display`, is stable, so metrics and programs
        /// may store it.
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

        impl Error {
            /// What kind of error it is.
            #[must_use]
            pub const fn kind(&self) -> ErrorKind {
                match self {
                    $($error => ErrorKind::$kind,)*
                }
            }
        }
    };
}

kinds! {
    /// [`Error::InFlight`].
    InFlight = "in_flight" for Self::InFlight { .. },
    /// [`Error::NotDue`].
    NotDue = "not_due" for Self::NotDue { .. },
    /// [`Error::Mismatch`].
    Mismatch = "mismatch" for Self::Mismatch { .. },
    /// [`Error::InDoubt`].
    InDoubt = "in_doubt" for Self::InDoubt { .. },
    /// [`Error::Exhausted`].
    Exhausted = "exhausted" for Self::Exhausted { .. },
    /// [`Error::LeaseLost`].
    LeaseLost = "lease_lost" for Self::LeaseLost { .. },
    /// [`Error::TimedOut`].
    TimedOut = "timed_out" for Self::TimedOut { .. },
    /// [`Error::NoTimeLeft`].
    NoTimeLeft = "no_time_left" for Self::NoTimeLeft { .. },
    /// [`Error::ResultNotStored`].
    ResultNotStored = "result_not_stored" for Self::ResultNotStored { .. },
    /// [`Error::Undecodable`].
    Undecodable = "undecodable" for Self::Undecodable { .. },
    /// [`Error::MissingKey`].
    MissingKey = "missing_key" for Self::MissingKey { .. },
    /// [`Error::InvalidKey`].
    InvalidKey = "invalid_key" for Self::InvalidKey { .. },
    /// [`Error::Configuration`].
    Configuration = "configuration" for Self::Configuration { .. },
    /// [`Error::NotRecorded`].
    NotRecorded = "not_recorded" for Self::NotRecorded { .. },
    /// [`Error::Store`].
    Store = "store" for Self::Store { .. },
    /// [`StepError::Repeated`].
    StepRepeated = "step_repeated" for Self::Step { source: StepError::Repeated, .. },
    /// [`StepError::Nested`].
    StepNested = "step_nested" for Self::Step { source: StepError::Nested, .. },
    /// [`StepError::Unprotected`].
    StepUnprotected = "step_unprotected" for Self::Step { source: StepError::Unprotected, .. },
    /// [`StepError::InputChanged`].
    StepInputChanged = "step_input_changed" for Self::Step { source: StepError::InputChanged, .. },
    /// [`StepError::Undecodable`].
    StepUndecodable = "step_undecodable" for Self::Step { source: StepError::Undecodable { .. }, .. },
    /// [`StepError::NotStored`].
    StepNotStored = "step_not_stored" for Self::Step { source: StepError::NotStored(_), .. },
    /// [`StepError::Store`].
    StepStore = "step_store" for Self::Step { source: StepError::Store(_), .. },
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq<&str> for ErrorKind {
    fn eq(&self, word: &&str) -> bool {
        self.as_str() == *word
    }
}

impl Error {
    /// Whether the same call may succeed when it is made again, now or after
    /// [`retry_after`](Self::retry_after).
    ///
    /// `false` if the call would get the same error until a person or a program changes something.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            // The body that holds the key waits for this call, so a retry cannot help.
            Self::InFlight { reentrant, .. } => !*reentrant,
            Self::NotDue { .. }
            | Self::LeaseLost { .. }
            | Self::TimedOut { .. }
            | Self::NoTimeLeft { .. }
            | Self::NotRecorded { .. } => true,
            Self::Store { source, .. } | Self::Step { source: StepError::Store(source), .. } => {
                source.is_transient()
            }
            _ => false,
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
