//! How a command ends: what a script sees.

use std::io;
use std::process::ExitCode;

use idem::{StoreError, StoreErrorKind};

/// The exit codes, as `--help` tells them.
pub(crate) const HELP: &str = "\
Exit codes:
  0  done
  1  nothing found: no such record, or none that fits
  2  wrong usage
  3  refused by the state of the store: the key is not in doubt, or there are several of it
  4  the store cannot be reached, or did not say whether it did it
  5  the store cannot be used like this: password, rights, layout, size of a result, a damaged record
  6  not confirmed
  7  doctor found something that weakens the guarantee";

/// How a command ended.
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

/// Why a command did not come to its end.
pub(crate) enum Trouble {
    /// This is to be said.
    Said(End, String),
    /// It could not print.
    Output(io::Error),
}

impl Trouble {
    pub(crate) fn new(end: End, text: impl Into<String>) -> Self {
        Self::Said(end, text.into())
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
