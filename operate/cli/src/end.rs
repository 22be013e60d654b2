//! How a command ends: its exit code, or an error.

use std::io;

use idem_operate_kit::Error;

/// How a command that did its work ended, with its exit code. An error's exit code is the number of its
/// `Kind`. The help and `docs/cli.md` explain the codes.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Done = 0,
    Nothing = 1,
    Refused = 3,
    Weak = 7,
}

pub(crate) type Answer<T = End> = idem_operate_kit::Result<T>;

/// The error for a standard input or a file that cannot be read.
pub(crate) fn input_error(error: &io::Error) -> Error {
    Error::usage(format!("cannot read the input: {error}"))
}
