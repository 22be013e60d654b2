//! How a command ends: its exit code, or an error.

use std::io;

use idem_operate_kit::Error;

/// The end of a command without an error, with its exit code. The exit code of an error is the number of the
/// error's `Kind`. The help and `docs/cli.md` explain the codes.
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
