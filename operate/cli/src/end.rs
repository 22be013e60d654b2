//! How a command ends: its exit code and error text.

use std::io;
use std::process::ExitCode;

use idem_core::StoreError;
use idem_operate_kit::{Error, Kind};

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

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(End::Usage, text)
    }

    /// Standard input, or a file, cannot be read.
    pub(crate) fn input(error: &io::Error) -> Self {
        Self::usage(format!("cannot read the input: {error}"))
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let end = match error.kind() {
            Kind::Absent => End::Nothing,
            Kind::Usage => End::Usage,
            Kind::Refused => End::Refused,
            Kind::Unreachable => End::Unreachable,
            Kind::Unusable => End::Unusable,
        };
        Self::Said(end, error.to_string())
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

pub(crate) type Answer<T = End> = Result<T, Trouble>;
