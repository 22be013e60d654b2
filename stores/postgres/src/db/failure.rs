//! Translates errors of the server and the driver, with advice for a person.
//!
//! Repeats only the code and the message of a server's error, because the error's detail may contain a row
//! with its key.

use sqlx::Error;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

use idem_core::StoreError;
pub(crate) use idem_store_kit::group_commit::Failure;
use idem_store_kit::sql::failure::Refusal;

/// `lock_timeout` ran out.
const LOCK_NOT_AVAILABLE: &str = "55P03";
const READ_ONLY: &str = "25006";
const CANNOT_CONNECT_NOW: &str = "57P03";
const DUPLICATE_STATEMENT: &str = "42P05";
const QUERY_CANCELED: &str = "57014";

fn database(error: &Error) -> Option<&PgDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

/// The error of a statement that was sent.
pub(crate) fn of_statement(error: &Error) -> Failure {
    let unknown = |detail| Failure::Broken(StoreError::outcome_unknown(detail));
    match error {
        Error::Database(_) => match database(error) {
            Some(error) => of_error(error),
            None => unknown("the server sent an error of no known kind".to_owned()),
        },
        Error::Encode(_) | Error::ColumnDecode { .. } | Error::Decode(_) | Error::TypeNotFound { .. } => {
            Failure::Refused(StoreError::configuration(format!(
                "the table is not as this version of idem made it: {error}"
            )))
        }
        Error::Io(error) => unknown(format!("the connection to the server was lost ({})", error.kind())),
        other => unknown(format!("the driver failed: {other}")),
    }
}

fn of_error(error: &PgDatabaseError) -> Failure {
    let (code, message) = (error.code(), error.message());
    let class = code.get(..2).unwrap_or_default();
    let is_fatal = matches!(error.severity(), PgSeverity::Fatal | PgSeverity::Panic);
    // The session, or the connection to the server behind a pooler, is lost. So the answer is lost, too.
    if is_fatal || class == "08" {
        return Failure::Broken(StoreError::outcome_unknown(said(code, message)));
    }
    let refused = refused(code, message);
    match (class, code) {
        (_, READ_ONLY) => Failure::ReadOnly(refused),
        // Another client has used the session. So the store's prepared statements are gone, another statement
        // has one of their names, or a transaction is open that this store did not begin.
        // `CANNOT_CONNECT_NOW`: the server is starting or stopping.
        ("25" | "26", _) | (_, DUPLICATE_STATEMENT | CANNOT_CONNECT_NOW) => Failure::Broken(refused),
        _ => Failure::Refused(refused),
    }
}

/// Whether a pooler refused the settings in the startup message.
pub(super) fn refuses_startup_options(error: &Error) -> bool {
    has_code(error, &["08P01", "0A000", "22023", "42704"])
}

pub(super) fn has_code(error: &Error, codes: &[&str]) -> bool {
    database(error).is_some_and(|error| codes.contains(&error.code()))
}

/// The error of an attempt to connect.
pub(crate) fn of_connect(error: &Error) -> Refusal {
    Refusal::of_connect(error, |error| {
        let error: &PgDatabaseError = error.try_downcast_ref()?;
        Some(refused(error.code(), error.message()))
    })
}

fn said(code: &str, message: &str) -> String {
    format!("the server said \"{message}\" (SQLSTATE {code})")
}

/// The error of a refusal: the statement was rolled back, or the session was not accepted.
pub(crate) fn refused(code: &str, message: &str) -> StoreError {
    let refusal = said(code, message);
    let (lasts, advice) = match (code.get(..2).unwrap_or_default(), code) {
        ("28", _) => (true, "look at the user, at its password, and at pg_hba.conf of the server"),
        ("3D", _) => (true, "look at the name of the database"),
        ("3F", _) => (true, "look at the name of the schema"),
        (_, "42501") => (true, "grant the user this right"),
        (_, "42P01") => (
            true,
            "it was dropped or renamed while this process ran; restore it, or start the process again, which \
             makes an empty one: what was recorded is forgotten then, and duplicates run",
        ),
        (_, DUPLICATE_STATEMENT) => (false, "a pooler shares the session with other clients"),
        ("42" | "0A" | "22" | "23", _) => {
            (true, "the table is not as this version of idem made it, or the server is none that idem knows")
        }
        (_, READ_ONLY) => (false, "this server takes no writes; it is a standby, or set to be read-only"),
        (_, LOCK_NOT_AVAILABLE) => {
            (false, "another transaction holds the record or the table; look for it in pg_stat_activity")
        }
        (_, QUERY_CANCELED) => (false, "it took longer than a statement may; nothing was applied"),
        _ => return StoreError::unavailable(refusal),
    };
    let error = format!("{refusal}; {advice}");
    if lasts { StoreError::configuration(error) } else { StoreError::unavailable(error) }
}

/// The error if others changed the record in each round, between the read and the write.
pub(crate) fn raced() -> StoreError {
    StoreError::unavailable("others changed the record each time it was read; try again")
}
