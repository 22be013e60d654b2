//! Translates errors of the server and the driver, with advice for a person.
//!
//! Repeats a message of the server only if the message cannot contain a value. Many messages repeat a part of
//! the statement, which may be a key.

use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;

use idem_core::StoreError;
pub(crate) use idem_store_kit::group_commit::Failure;
use idem_store_kit::sql::failure::Refusal;

/// The server's error numbers that have a meaning here.
mod number {
    pub(super) const DUPLICATE_ENTRY: u16 = 1062;
    /// A column or index already exists, or is already gone.
    pub(super) const ALTERED: [u16; 3] = [1060, 1061, 1091];
    pub(super) const LOCK_WAIT_TIMEOUT: u16 = 1205;
    pub(super) const DEADLOCK: u16 = 1213;
    /// MariaDB: the row has changed since the transaction's snapshot.
    pub(super) const RECORD_CHANGED: u16 = 1020;
    /// Another transaction was first, or has locked a row. 3572: `NOWAIT` on MySQL, where MariaDB returns
    /// `LOCK_WAIT_TIMEOUT`. 3101: another member of a replication group was first.
    pub(super) const RACED: [u16; 6] =
        [DUPLICATE_ENTRY, LOCK_WAIT_TIMEOUT, DEADLOCK, RECORD_CHANGED, 3101, 3572];
    pub(super) const PACKET_TOO_LARGE: u16 = 1153;
    pub(super) const NO_SUCH_TABLE: u16 = 1146;
    /// The server has `read_only` or `super_read_only` set, the transaction is read-only, or `InnoDB` is in
    /// its own read-only mode.
    pub(super) const READ_ONLY: [u16; 3] = [1290, 1792, 1836];
    /// A commit that failed halfway, and errors that end a session or statement at any moment.
    pub(super) const UNKNOWN_AT_COMMIT: [u16; 5] = [1053, 1180, 1317, 1927, 3168];
    /// Errors of a proxy, which may have lost its connection to the server: the numbers of the client
    /// library, and of `ProxySQL`.
    pub(super) const PROXY: [std::ops::RangeInclusive<u16>; 2] = [2_000..=2_999, 9_000..=9_999];
    /// A transaction is open that this store did not begin, because another client has used the session.
    pub(super) const TRANSACTION_OPEN: u16 = 1568;
    /// The session is over, or the server refuses all statements. For example, the server is a Galera node
    /// that left its group (1047), or is in offline mode (3032). A new connection may lead to another server.
    pub(super) const SESSION_OVER: [u16; 7] = [1047, 1053, 1152, 1184, 1927, 3032, 4031];
    /// Errors whose messages contain no values of the store.
    pub(super) const HARMLESS: [u16; 40] = [
        1021, 1030, 1040, 1041, 1044, 1045, 1047, 1049, 1053, 1071, 1114, 1118, 1129, 1130, 1142, 1143, 1146,
        1152, 1153, 1180, 1184, 1203, 1205, 1213, 1226, 1227, 1251, 1286, 1290, 1317, 1524, 1665, 1698, 1792,
        1820, 1836, 1927, 1969, 3024, 3572,
    ];
}

/// Whether an exchange commits its transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Open,
    Committing,
}

fn database(error: &Error) -> Option<&MySqlDatabaseError> {
    error.as_database_error()?.try_downcast_ref()
}

fn has_number(error: &Error, numbers: &[u16]) -> bool {
    database(error).is_some_and(|error| numbers.contains(&error.number()))
}

/// Whether another row has the same key.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    has_number(error, &[number::DUPLICATE_ENTRY])
}

/// Whether a column or index to add already exists, or a column or index to drop is already gone.
pub(crate) fn is_altered(error: &Error) -> bool {
    has_number(error, &number::ALTERED)
}

/// Whether another transaction has locked a row or a table that the statement needs.
pub(crate) fn is_lock_wait(error: &Error) -> bool {
    has_number(error, &[number::LOCK_WAIT_TIMEOUT])
}

/// Whether the server may have rolled back the whole transaction, and not only the statement.
pub(crate) fn may_end_transaction(error: &Error) -> bool {
    has_number(error, &[number::DEADLOCK, number::LOCK_WAIT_TIMEOUT, number::RECORD_CHANGED])
}

/// The error of statements that were sent.
pub(crate) fn of_statement(error: &Error, stage: Stage) -> Failure {
    // If the connection is lost, the server rolls back a transaction that was not committed. So nothing was
    // applied, unless the exchange included the commit.
    let lost = |detail: String| match stage {
        Stage::Open => Failure::Broken(StoreError::unavailable(detail)),
        Stage::Committing => Failure::Broken(StoreError::outcome_unknown(detail)),
    };
    match error {
        Error::Database(_) => match database(error) {
            Some(error) => of_error(error, stage),
            None => lost("the server sent an error of no known kind".to_owned()),
        },
        Error::Encode(_) | Error::ColumnDecode { .. } | Error::Decode(_) | Error::TypeNotFound { .. } => {
            lost("the server's answer could not be read".to_owned())
        }
        Error::Io(error) => lost(format!("the connection to the server was lost ({})", error.kind())),
        _ => lost("the driver failed".to_owned()),
    }
}

fn of_error(error: &MySqlDatabaseError, stage: Stage) -> Failure {
    let code = error.number();
    if stage == Stage::Committing && is_unknown_at_commit(code) {
        return Failure::Broken(StoreError::outcome_unknown(message_of(error)));
    }
    match code {
        code if number::RACED.contains(&code) => Failure::Raced(refused(error)),
        number::NO_SUCH_TABLE => Failure::Absent(refused(error)),
        number::TRANSACTION_OPEN => Failure::Broken(refused(error)),
        code if number::READ_ONLY.contains(&code) => Failure::ReadOnly(refused(error)),
        code if number::SESSION_OVER.contains(&code) => Failure::Broken(refused(error)),
        _ => Failure::Refused(refused(error)),
    }
}

fn is_unknown_at_commit(code: u16) -> bool {
    number::UNKNOWN_AT_COMMIT.contains(&code) || number::PROXY.iter().any(|range| range.contains(&code))
}

pub(crate) fn of_connect(error: &Error) -> Refusal {
    Refusal::of_connect(error, |error| error.try_downcast_ref().map(refused))
}

fn message_of(error: &MySqlDatabaseError) -> String {
    let code = error.number();
    match number::HARMLESS.contains(&code) {
        true => format!("the server said \"{}\" (error {code})", error.message()),
        false => format!("the server said error {code}"),
    }
}

/// How to fix an error that lasts until somebody fixes it.
const fn advice(code: u16) -> Option<&'static str> {
    Some(match code {
        number::PACKET_TOO_LARGE => "raise the server's `max_allowed_packet`",
        1665 => "set the server's `binlog_format` to ROW or MIXED",
        1064 => "it does not know a statement: this store needs MySQL 8.0 or MariaDB 10.6, or later",
        1054 | number::NO_SUCH_TABLE => "the table is not as this version of idem made it",
        // Errors of users, rights, databases and tables, and settings that this store cannot work with.
        1044 | 1045 | 1049 | 1071 | 1118 | 1130 | 1142 | 1143 | 1227 | 1251 | 1275 | 1286 | 1396 | 1524
        | 1698 | 1820 | 1862 | 3118 | 3159 | 4151 => "look at user, rights and database",
        _ => return None,
    })
}

/// The error of a refusal: the transaction is or will be rolled back, or the session was not accepted.
fn refused(error: &MySqlDatabaseError) -> StoreError {
    let message = message_of(error);
    match advice(error.number()) {
        Some(advice) => StoreError::configuration(format!("{message}; {advice}")),
        None => StoreError::unavailable(message),
    }
}

pub(crate) fn locked() -> StoreError {
    StoreError::unavailable("another transaction has the record locked; try again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_that_lost_its_server_at_a_commit_does_not_know_the_outcome() {
        for code in [1180, 2006, 2013, 2055, 9001] {
            assert!(is_unknown_at_commit(code), "{code}");
        }
        for code in [1062, 1205, 1213, 1290, 3101, 4151] {
            assert!(!is_unknown_at_commit(code), "{code}");
        }
    }

    #[test]
    fn a_session_that_was_ended_or_whose_server_serves_nobody_is_left() {
        for code in [1047, 1927, 3032] {
            assert!(number::SESSION_OVER.contains(&code), "{code}");
        }
    }
}
