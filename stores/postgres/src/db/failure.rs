//! Translates errors of the server and the driver, with advice for a person.
//!
//! Passes on only an error's code and message: its detail may contain a row, and so a key.

use sqlx::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use idem_core::StoreError;
pub(crate) use idem_store_kit::group_commit::Failure;
use idem_store_kit::sql::failure::{self as connecting, Refusal};

/// `lock_timeout` ran out.
const LOCK_NOT_AVAILABLE: &str = "55P03";
const READ_ONLY: &str = "25006";
const CANNOT_CONNECT_NOW: &str = "57P03";
const DUPLICATE_STATEMENT: &str = "42P05";

fn database(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// The error of a statement that was sent.
pub(crate) fn of_statement(error: &Error) -> Failure {
    match error {
        Error::Database(_) => match database(error) {
            Some(error) if is_fatal(error) => Failure::Broken(StoreError::outcome_unknown(said(error))),
            Some(error) => of_error(error),
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

/// The failure for an error that did not end the session.
fn of_error(error: &PgDatabaseError) -> Failure {
    let code = error.code();
    match (code.get(..2).unwrap_or_default(), code) {
        (_, READ_ONLY) => Failure::ReadOnly(refusal(error)),
        // The connection to the server behind a pooler is lost, and with it the answer.
        ("08", _) => Failure::Broken(StoreError::outcome_unknown(said(error))),
        // Another client has used the session: its statements are gone, or a transaction is open that this store did not begin.
        ("25" | "26", _) | (_, DUPLICATE_STATEMENT | CANNOT_CONNECT_NOW) => Failure::Broken(refusal(error)),
        _ => Failure::Refused(refusal(error)),
    }
}

/// Whether a pooler refused the settings in the startup message.
pub(super) fn refuses_startup_options(error: &Error) -> bool {
    has_code(error, &["08P01", "0A000", "22023", "42704"])
}

/// Whether the server's error has one of these codes.
pub(super) fn has_code(error: &Error, codes: &[&str]) -> bool {
    database(error).is_some_and(|error| codes.contains(&error.code()))
}

/// The error of an attempt to connect: nothing was sent that could have been applied.
pub(crate) fn of_connect(error: &Error) -> StoreError {
    connecting::of_connect(error, |error| error.try_downcast_ref().map(refusal))
}

/// The same, and whether another server may be of use.
pub(super) fn refusal_of_connect(error: &Error) -> Refusal {
    Refusal::of_connect(error, of_connect(error))
}

/// Whether the server ended the session with this error.
fn is_fatal(error: &PgDatabaseError) -> bool {
    matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic)
}

fn said(error: &PgDatabaseError) -> String {
    quoted(error.code(), error.message())
}

fn quoted(code: &str, message: &str) -> String {
    format!("the server said \"{message}\" (SQLSTATE {code})")
}

fn refusal(error: &PgDatabaseError) -> StoreError {
    refused(error.code(), error.message())
}

/// The error of a refusal: the statement was rolled back, or the session was not accepted.
pub(crate) fn refused(code: &str, message: &str) -> StoreError {
    let said = quoted(code, message);
    let class = code.get(..2).unwrap_or_default();
    match (class, code) {
        ("28", _) => StoreError::configuration(format!(
            "{said}; look at the user, at its password, and at pg_hba.conf of the server"
        )),
        ("3D", _) => StoreError::configuration(format!("{said}; look at the name of the database")),
        ("3F", _) => StoreError::configuration(format!("{said}; look at the name of the schema")),
        (_, "42501") => StoreError::configuration(format!("{said}; grant the user this right")),
        (_, "42P01") => StoreError::configuration(format!(
            "{said}: it was dropped or renamed while this process ran; restore it, or start the process again, which \
             makes an empty one: what was recorded is forgotten then, and duplicates run"
        )),
        (_, DUPLICATE_STATEMENT) => {
            StoreError::unavailable(format!("{said}: a pooler shares the session with other clients"))
        }
        ("42" | "0A" | "22" | "23", _) => StoreError::configuration(format!(
            "{said}; the table is not as this version of idem made it, or the server is none that idem knows"
        )),
        (_, READ_ONLY) => StoreError::unavailable(format!(
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

/// The error of a record that others change faster than it can be read and written.
pub(crate) fn raced() -> StoreError {
    StoreError::unavailable("others changed the record each time it was read; try again")
}
