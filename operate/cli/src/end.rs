//! How a command ends: its exit code and error text.

use std::io;

use idem_core::StoreError;
use idem_operate_kit::{Error, Kind};

/// How a command ended that did its work, by its exit code. Those of errors are the numbers of their [`Kind`]. The help and
/// `docs/cli.md` explain them.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Done = 0,
    Nothing = 1,
    Refused = 3,
    Weak = 7,
}

/// Why a command failed.
pub(crate) enum Trouble {
    /// With the text for the user.
    Error(Error),
    /// The command could not print.
    Output(io::Error),
}

impl Trouble {
    pub(crate) fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self::Error(Error::new(kind, text))
    }

    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Kind::Usage, text)
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
        Self::Error(error)
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Error(error.into())
    }
}

pub(crate) type Answer<T = End> = Result<T, Trouble>;
