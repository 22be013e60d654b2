//! What the server's and the driver's errors mean for the caller, and what a person can do about them.
//!
//! Only an error's code and message are ever passed on: its detail may hold a row, and so a key.

use std::time::Duration;

use sqlx::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use super::rows::Unreadable;
use crate::error::StoreError;
use crate::key::RecordKey;

/// `lock_timeout` ran out.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// Why a statement gave no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The server refused it: nothing of it was applied, and the connection is as good as before.
    Refused(StoreError),
    /// The connection is of no more use; the statement may have been applied.
    Broken(StoreError),
}

impl Failure {
    pub(crate) fn error(self) -> StoreError {
        match self {
            Self::Refused(error) | Self::Broken(error) => error,
        }
    }
}

fn database(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// The error of a statement that was sent.
pub(crate) fn of_statement(error: &Error) -> Failure {
    match error {
        Error::Database(_) => match database(error) {
            Some(error) if is_fatal(error) => Failure::Broken(StoreError::outcome_unknown(said(error))),
            Some(error) => Failure::Refused(refused(error)),
            None => Failure::Broken(StoreError::outcome_unknown("the server sent an error of no known kind")),
        },
        Error::Encode(_) | Error::ColumnDecode { .. } | Error::Decode(_) | Error::TypeNotFound { .. } => {
            Failure::Refused(StoreError::configuration(format!(
                "the table is not as this version of idem made it: {error}"
            )))
        }
        Error::Io(error) => Failure::Broken(StoreError::outcome_unknown(format!(
            "the connection to the server was lost ({})",
            error.kind()
        ))),
        other => Failure::Broken(StoreError::outcome_unknown(format!("the driver failed: {other}"))),
    }
}

/// The error of an attempt to connect: nothing was sent that could have been applied.
pub(crate) fn of_connect(error: &Error) -> StoreError {
    match error {
        Error::Database(_) => match database(error) {
            Some(error) => refused(error),
            None => StoreError::unavailable("the server refused the connection"),
        },
        Error::Configuration(error) => {
            StoreError::configuration(format!("the connection's settings are wrong: {error}"))
        }
        Error::Tls(error) => {
            StoreError::configuration(format!("no encrypted connection can be made: {error}"))
        }
        Error::Io(error) => {
            StoreError::unavailable(format!("no connection to the server can be made ({error})"))
        }
        other => StoreError::unavailable(format!("no connection to the server can be made: {other}")),
    }
}

/// The server ended the session with it, so it was no answer to a statement alone.
fn is_fatal(error: &PgDatabaseError) -> bool {
    matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
}

fn said(error: &PgDatabaseError) -> String {
    format!("the server said \"{}\" (SQLSTATE {})", error.message(), error.code())
}

/// What a refusal means: the statement was rolled back, or the session was not let in.
fn refused(error: &PgDatabaseError) -> StoreError {
    let code = error.code();
    let said = said(error);
    let class = code.get(..2).unwrap_or_default();
    match (class, code) {
        // Access rights, names that are not there, syntax: nothing that passes by itself.
        ("28" | "3D" | "42" | "3F" | "0A" | "22" | "23", _) => StoreError::configuration(format!(
            "{said}; look at the user's password and rights, and at the names of database, schema and table"
        )),
        (_, "25006") => StoreError::unavailable(format!(
            "{said}: this server takes no writes; it is a standby, or set to be read-only"
        )),
        (_, LOCK_NOT_AVAILABLE) => StoreError::unavailable(format!(
            "{said}: another transaction holds the record or the table; look for it in pg_stat_activity"
        )),
        (_, "57014") => StoreError::unavailable(format!(
            "{said}: it took longer than a statement may; nothing was applied"
        )),
        _ => StoreError::unavailable(said),
    }
}

/// No answer in time; what was sent may still be applied.
pub(crate) fn late(time: Duration) -> Failure {
    Failure::Broken(StoreError::outcome_unknown(format!("the server did not answer within {time:?}")))
}

/// The error of a row that is no record.
pub(super) fn unreadable(key: &RecordKey, Unreadable(column): Unreadable) -> StoreError {
    StoreError::corrupt_record(format!(
        "column {column} of the record of {} (key digest {}); look at it with psql, and correct or forget it",
        key.scope(),
        key.digest()
    ))
}
