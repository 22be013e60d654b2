//! What SQLite's errors mean for the caller, and what to do about them.

use std::path::Path;

use rusqlite::{Connection, Error, ErrorCode};

use idem_core::StoreError;

/// SQLite's code of the error, with or without a statement.
pub(super) fn code(error: &Error) -> Option<ErrorCode> {
    match error {
        Error::SqlInputError { error, .. } => Some(error.code),
        error => error.sqlite_error_code(),
    }
}

/// The error for a file that was replaced while the log of the previous file is still beside it.
pub(super) fn log_left(path: &Path) -> StoreError {
    let path = path.display();
    StoreError::unavailable(format!(
        "the file {path} was replaced and the log {path}-wal of the one before lies beside it, which SQLite \
         would play into the new one; put the old file back, or move {path}-wal and {path}-shm away"
    ))
}

/// Whether another connection was in the way.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(code(error), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether the error concerns one row or statement, so that others in the same transaction may succeed.
pub(super) fn is_local(error: &Error) -> bool {
    !matches!(
        code(error),
        Some(
            ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::NotADatabase
                | ErrorCode::OutOfMemory
                | ErrorCode::FileLockingProtocolFailed
                | ErrorCode::PermissionDenied
        )
    )
}

/// Whether a connection should be opened again after this error.
pub(super) fn is_suspect(error: &Error) -> bool {
    matches!(
        code(error),
        Some(
            ErrorCode::SystemIoFailure
                | ErrorCode::CannotOpen
                | ErrorCode::ReadOnly
                | ErrorCode::NotADatabase
                | ErrorCode::ApiMisuse
                | ErrorCode::InternalMalfunction
        )
    )
}

/// Whether a commit that failed with this error certainly did not happen.
///
/// Without a lock nothing is written. A full disk refuses a frame of the log, at the latest the one that commits the
/// transaction. After any other error, such as a failed flush, the outcome is unknown.
pub(super) fn is_certainly_not_committed(error: &Error) -> bool {
    is_busy(error) || matches!(code(error), Some(ErrorCode::DiskFull))
}

/// The error for an operation that was not applied. Damage is not an outage: a retry does not mend it, and a record may be
/// there that cannot be read.
pub(super) fn not_applied(path: &Path, error: Error) -> StoreError {
    let advice = advice(path, &error);
    let kind = match code(&error) {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::corrupt_record(advice),
        _ => StoreError::unavailable(advice),
    };
    kind.with_source(error)
}

/// As [`not_applied`], on a connection that was opened for writing. If it has become read-only, the header of the file says
/// so, which SQLite does not write.
pub(super) fn not_applied_on(connection: &Connection, path: &Path, error: Error) -> StoreError {
    let is_header = code(&error) == Some(ErrorCode::ReadOnly) && connection.is_readonly("main") == Ok(true);
    if is_header {
        StoreError::corrupt_record(damaged(path)).with_source(error)
    } else {
        not_applied(path, error)
    }
}

fn damaged(path: &Path) -> String {
    let path = path.display();
    format!(
        "the file {path} is damaged; restore it from a backup, or save what is left with `sqlite3 FILE .recover`"
    )
}

/// The error for an operation that may have been applied.
pub(super) fn outcome_unknown(path: &Path, error: Error) -> StoreError {
    StoreError::outcome_unknown(advice(path, &error)).with_source(error)
}

/// The error if the path no longer names the file that was opened.
pub(super) fn gone(path: &Path) -> StoreError {
    StoreError::unavailable(format!(
        "the file {} was removed or replaced; put it back, with its -wal file if there is one",
        path.display()
    ))
}

fn advice(path: &Path, error: &Error) -> String {
    if let Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) = code(error) {
        return damaged(path);
    }
    let path = path.display();
    match code(error) {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => format!(
            "the file {path} stayed locked by another program; find it (`fuser`, `lsof`), or set a longer `busy_timeout`"
        ),
        Some(ErrorCode::DiskFull) => {
            format!("there is no room left for the file {path}; free some on its disk")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("the disk failed under the file {path}; look into the system's log")
        }
        Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => format!(
            "the file {path}, or its -wal and -shm files, cannot be opened; its folder must exist, and this user must be allowed to write all of them"
        ),
        Some(ErrorCode::ReadOnly) => format!(
            "the file {path}, or its folder, cannot be written; check its permissions and how its disk is mounted"
        ),
        Some(ErrorCode::OutOfMemory) => format!("there was not enough memory to work on the file {path}"),
        Some(ErrorCode::FileLockingProtocolFailed) => {
            format!("the locks of the file {path} do not work; it must be on a disk of this host")
        }
        _ => format!("SQLite failed on the file {path}"),
    }
}
