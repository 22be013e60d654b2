//! How a command ends: its exit code and error text.

use std::io;
use std::process::ExitCode;

use idem_core::{StoreError, StoreErrorKind};

/// The exit codes; the help and `docs/cli.md` explain them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Done = 0,
    Nothing = 1,
    Usage = 2,
    Refused = 3,
    Unreachable = 4,
    Unusable = 5,
    Unconfirmed = 6,
    Weak = 7,
}

impl From<End> for ExitCode {
    fn from(end: End) -> Self {
        Self::from(end as u8)
    }
}

/// Why a command failed.
pub(crate) enum Trouble {
    /// An exit code, and the text for the user.
    Said(End, String),
    /// The command could not print.
    Output(io::Error),
}

impl Trouble {
    pub(crate) fn new(end: End, text: impl Into<String>) -> Self {
        Self::Said(end, text.into())
    }

    /// Standard input, or a file, cannot be read.
    pub(crate) fn input(error: &io::Error) -> Self {
        Self::new(End::Usage, format!("cannot read the input: {error}"))
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        let end = match error.kind() {
            StoreErrorKind::Unavailable | StoreErrorKind::OutcomeUnknown => End::Unreachable,
            _ => End::Unusable,
        };
        Self::Said(end, error.to_string())
    }
}

pub(crate) type Answer<T = End> = Result<T, Trouble>;
