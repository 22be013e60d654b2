//! How a command ends: its exit code, or an error.

use std::io;

use idem_operate_kit::Error;

/// How a command that did its work ended, by its exit code. The codes of errors are the numbers of their
/// kinds. The help and `docs/cli.md` explain them.
#[derive(Clone, Copy)]
pub(crate) enum End {
    Done = 0,
    Nothing = 1,
    Refused = 3,
    Weak = 7,
}

pub(crate) type Answer<T = End> = idem_operate_kit::Result<T>;

/// Standard input, or a file, cannot be read.
pub(crate) fn input_error(error: &io::Error) -> Error {
    Error::usage(format!("cannot read the input: {error}"))
}
