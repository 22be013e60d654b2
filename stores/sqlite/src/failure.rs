//! What SQLite's errors mean for the caller, and what to do about them.

use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode};

use idem_core::StoreError;

pub(super) fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqlInputError { error, .. } => Some(error.code),
        error => error.sqlite_error_code(),
    }
}

/// How much fails because of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only one operation. The other operations of the same transaction may succeed.
    Operation,
    Transaction,
    /// Everything on this connection. The file must be opened again.
    Connection,
}

pub(super) fn reach(error: &Error) -> Reach {
    match code(error) {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OutOfMemory
            | ErrorCode::PermissionDenied,
        ) => Reach::Transaction,
        Some(
            ErrorCode::ApiMisuse
            | ErrorCode::CannotOpen
            | ErrorCode::InternalMalfunction
            | ErrorCode::NotADatabase
            | ErrorCode::ReadOnly
            | ErrorCode::SystemIoFailure,
        ) => Reach::Connection,
        _ => Reach::Operation,
    }
}

/// Whether another connection held a lock.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(code(error), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether a commit that failed with this error was certainly not applied.
///
/// If another connection held a lock, nothing was written. If the disk is full, the frame that commits the
/// transaction is not in the log, because this frame or an earlier one was refused. After any other error,
/// such as a failed flush, the outcome is unknown.
pub(super) fn is_certainly_not_committed(error: &Error) -> bool {
    is_busy(error) || matches!(code(error), Some(ErrorCode::DiskFull))
}

/// The error for an operation that was not applied. A damaged file is not reported as unavailable: a retry
/// does not repair it, and an unreadable record may still exist.
pub(super) fn not_applied(path: &Path, error: Error) -> StoreError {
    let meaning = match code(&error) {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => damaged(path),
        code => StoreError::unavailable(advice(path, code)),
    };
    meaning.with_source(error)
}

/// As [`not_applied`], on a connection that was opened for writing. If the connection has become read-only,
/// the header of the file is the cause. SQLite never writes such a header, so the file is damaged.
pub(super) fn not_applied_on(connection: &Connection, path: &Path, error: Error) -> StoreError {
    let is_header = code(&error) == Some(ErrorCode::ReadOnly) && connection.is_readonly("main") == Ok(true);
    if is_header { damaged(path).with_source(error) } else { not_applied(path, error) }
}

pub(super) fn damaged(path: &Path) -> StoreError {
    StoreError::corrupt_record(advice(path, Some(ErrorCode::DatabaseCorrupt)))
}

/// The error for an operation that may have been applied.
pub(super) fn outcome_unknown(path: &Path, error: Error) -> StoreError {
    StoreError::outcome_unknown(advice(path, code(&error))).with_source(error)
}

/// The error if the path no longer leads to the file that was opened.
pub(super) fn gone(path: &Path) -> StoreError {
    StoreError::unavailable(format!(
        "the file {} was removed or replaced; put it back, with its -wal file if there is one",
        path.display()
    ))
}

/// The error for a file that was replaced while the log of the previous file is still beside it.
pub(super) fn log_left(path: &Path, log: &Path) -> StoreError {
    StoreError::unavailable(format!(
        "the file {} was replaced and the log {} of the one before lies beside it, which SQLite would play into the \
         new one; put the old file back, or move its -wal and -shm files away",
        path.display(),
        log.display()
    ))
}

/// What happened to the file, and what to do.
fn advice(path: &Path, code: Option<ErrorCode>) -> String {
    let words = match code {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "is damaged; restore it from a backup, or save what is left with `sqlite3 FILE .recover`"
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "stayed locked by another program; find it (`fuser`, `lsof`), or set a longer `busy_timeout`"
        }
        Some(ErrorCode::DiskFull) => "has no room left; free some on its disk",
        Some(ErrorCode::SystemIoFailure) => "is on a disk that failed; look into the system's log",
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            "or its -wal or -shm file cannot be opened; its folder must exist, and this user must be allowed to write \
             all of them"
        }
        Some(ErrorCode::ReadOnly) => {
            "or its folder cannot be written; check its permissions and how its disk is mounted"
        }
        Some(ErrorCode::OutOfMemory) => "needs more memory than there was",
        Some(ErrorCode::FileLockingProtocolFailed) => {
            "has locks that do not work; it must be on a disk of this host"
        }
        _ => "made SQLite fail",
    };
    format!("the file {} {words}", path.display())
}
