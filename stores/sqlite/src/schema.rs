//! Opening a database file: to which program it belongs, its layout, and the migration to a newer layout.
//!
//! A file of another program stays unchanged, byte for byte, because nothing is written before the owner of
//! the file is known.

use std::fs::metadata;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use super::batch::Session;
use super::failure;
use super::file::{Identity, SMALLEST, harden, has_log, log_path};
use idem_core::StoreError;

/// "idem" in ASCII, in the header field that identifies the program to which a SQLite file belongs.
const APPLICATION_ID: i64 = 0x6964_656d;

/// The steps that make the layout, beginning with an empty file; `user_version` counts the steps that a file
/// has. A change of the layout is one more step, which also adapts the existing records.
///
/// Each step is a transaction. A step that builds an index takes a second for a million records. Other
/// writers wait for the end of a step, or fail after their busy timeout, because SQLite allows one writer at
/// a time. Replays continue.
pub(super) const LAYOUT: &[&str] = &["
    CREATE TABLE idem_records (
        scope        TEXT    NOT NULL,
        key          TEXT    NOT NULL,
        state        TEXT    NOT NULL, -- in_flight, completed, failed, released, in_doubt
        owner        BLOB    NOT NULL,
        fence        INTEGER NOT NULL,
        attempt      INTEGER NOT NULL,
        recovered    INTEGER NOT NULL,
        on_crash     TEXT    NOT NULL, -- rerun, in_doubt
        lease_until  INTEGER NOT NULL, -- instants: microseconds since 1970-01-01 UTC
        retry_at     INTEGER NOT NULL,
        ttl          INTEGER NOT NULL, -- microseconds
        fingerprint  BLOB,
        tombstone    TEXT,             -- why there is no result: too_large, not_encodable, exhausted
        created_at   INTEGER NOT NULL,
        completed_at INTEGER,
        expires_at   INTEGER,
        steps        INTEGER NOT NULL, -- how many there are in idem_steps
        purge_at     INTEGER NOT NULL, -- when a purge looks at it; renewals and completions leave it, and write no index
        result       BLOB,             -- last, so that SQLite finds the others without reading through it
        UNIQUE (scope, key)
    ) STRICT;
    CREATE INDEX idem_records_purge ON idem_records (purge_at);
    CREATE TABLE idem_steps (
        scope     TEXT    NOT NULL,
        key       TEXT    NOT NULL,
        position  INTEGER NOT NULL, -- from 0, in the order they were recorded
        step      BLOB    NOT NULL,
        UNIQUE (scope, key, position)
    ) STRICT;
    -- Steps go with their record, and all at once when it has a result or begins anew.
    CREATE TRIGGER idem_steps_deleted AFTER DELETE ON idem_records WHEN old.steps > 0 BEGIN
        DELETE FROM idem_steps WHERE scope = old.scope AND key = old.key;
    END;
    CREATE TRIGGER idem_steps_over AFTER UPDATE ON idem_records WHEN new.steps < old.steps BEGIN
        DELETE FROM idem_steps WHERE scope = old.scope AND key = old.key;
    END;
"];

/// Statements that read the beginning of each table and index, so that damage there is found when the file is
/// opened.
const TOUCH: [&str; 5] = [
    "SELECT count(*) FROM (SELECT rowid FROM idem_records NOT INDEXED LIMIT 1)",
    "SELECT count(*) FROM (SELECT 1 FROM idem_records WHERE scope >= '' ORDER BY scope, key LIMIT 1)",
    "SELECT count(*) FROM (SELECT 1 FROM idem_records WHERE purge_at >= 0 ORDER BY purge_at LIMIT 1)",
    "SELECT count(*) FROM (SELECT rowid FROM idem_steps NOT INDEXED LIMIT 1)",
    "SELECT count(*) FROM (SELECT 1 FROM idem_steps WHERE scope >= '' ORDER BY scope, key, position LIMIT 1)",
];

/// A longer log is truncated to this size.
const LOG_BYTES: i64 = 16 * 1024 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// For use: the file is created if it is missing, and gets the steps of the layout that it lacks.
    Use,
    /// For a running store that opens the file again: the file must exist.
    UseAgain,
    /// For a tool that examines the file: the file must exist, with the whole layout.
    Examine,
}

#[derive(Clone, Copy)]
pub(super) struct Opening {
    pub(super) purpose: Purpose,
    pub(super) layout: &'static [&'static str],
    /// Until when to wait for other programs.
    pub(super) until: Instant,
}

/// Why an attempt to open did not succeed.
enum Refusal {
    Sqlite(rusqlite::Error),
    /// The file at the path changed meanwhile, so try again.
    Moved,
    Final(StoreError),
}

impl From<rusqlite::Error> for Refusal {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Final(error)
    }
}

/// Opens the database for writing, creates or migrates it if the options say so, and returns the identity of
/// the file.
pub(super) fn open(path: &Path, opening: Opening) -> Result<(Connection, Identity), StoreError> {
    loop {
        let refusal = match attempt(path, opening) {
            Ok(opened) => return Ok(opened),
            Err(refusal) => refusal,
        };
        let late = Instant::now() >= opening.until;
        match refusal {
            // Tried again, because the switch to the write-ahead log does not call the busy handler.
            Refusal::Sqlite(error) if failure::is_busy(&error) && !late => {}
            Refusal::Moved if !late => {}
            Refusal::Sqlite(error) => return Err(refused(path, opening, error)),
            Refusal::Moved => return Err(failure::gone(path)),
            Refusal::Final(error) => return Err(error),
        }
        std::thread::sleep(Duration::from_millis(rand::random_range(2..20)));
    }
}

fn refused(path: &Path, opening: Opening, error: rusqlite::Error) -> StoreError {
    match failure::code(&error) {
        // The file may be another program's. With `UseAgain`, the store has used the file before, so the file
        // is damaged.
        Some(ErrorCode::NotADatabase | ErrorCode::Unknown) if opening.purpose != Purpose::UseAgain => {
            foreign(path, "it is no SQLite database, or its header is damaged").with_source(error)
        }
        _ => failure::not_applied(path, error),
    }
}

fn foreign(path: &Path, reason: &str) -> StoreError {
    StoreError::configuration(format!(
        "the file {} is not idem's ({reason}); it was left as it is: give the path of another file",
        path.display()
    ))
}

/// The file at the path, if there is one, and its length in bytes.
///
/// # Errors
///
/// A configuration error if something other than a file is at the path.
fn look(path: &Path) -> Result<Option<(Identity, u64)>, StoreError> {
    match metadata(path) {
        Ok(metadata) if metadata.is_file() => Ok(Some((Identity::of(&metadata), metadata.len()))),
        Ok(metadata) => Err(StoreError::configuration(format!(
            "{} is {}; give the path of a file",
            path.display(),
            if metadata.is_dir() { "a folder" } else { "not a regular file" }
        ))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::InvalidFilename) => {
            Err(StoreError::configuration("the path of the database is no path; give the path of a file")
                .with_source(error))
        }
        Err(error) => Err(StoreError::unavailable(format!(
            "the file {} cannot be looked at; check its folder and the permissions of that",
            path.display()
        ))
        .with_source(error)),
    }
}

fn attempt(path: &Path, opening: Opening) -> Result<(Connection, Identity), Refusal> {
    // Looks at the log before the file, because another process may be creating both. A file has content
    // before its log has.
    let has_log = has_log(path);
    let before = look(path)?;
    let length = before.map_or(0, |(_, length)| length);
    if length == 0 && has_log {
        // SQLite would delete the log, which may be the only copy of the last operations.
        return Err(StoreError::unavailable(format!(
            "the file {} is gone or empty and its log {} is not; put the file back, or move the log away",
            path.display(),
            log_path(path).display()
        ))
        .into());
    }
    // SQLite treats a file of one byte as an empty one, so SQLite must not open it.
    if (1..SMALLEST).contains(&length) {
        return Err(foreign(path, "it is no SQLite database").into());
    }
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    match opening.purpose {
        _ if length > 0 => {}
        // This store has used the file before, so a file that is now empty or missing had records. A new file
        // in its place would forget them.
        Purpose::UseAgain => return Err(failure::gone(path).into()),
        _ if before.is_some() => {}
        Purpose::Use => flags |= OpenFlags::SQLITE_OPEN_CREATE,
        Purpose::Examine => {
            let path = path.display();
            let detail = format!("there is no file {path}; name the one that the program uses");
            return Err(StoreError::configuration(detail).into());
        }
    }
    let connection = Connection::open_with_flags(path, flags)?;
    let Some((identity, _)) = look(path)? else { return Err(Refusal::Moved) };
    if before.is_some_and(|(earlier, _)| earlier != identity) {
        return Err(Refusal::Moved);
    }
    connection.busy_timeout(opening.until.saturating_duration_since(Instant::now()))?;
    // Until the owner of the file is known, closing the connection must not write the log into the database.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)?;
    if connection.is_readonly("main")? {
        let error = StoreError::unavailable(format!(
            "the file {} cannot be written; check its permissions and how its disk is mounted",
            path.display()
        ));
        return Err(error.into());
    }
    harden(&connection)?;
    prepare(&connection, path, opening)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)?;
    Ok((connection, identity))
}

/// Runs the missing steps of the layout, checks the tables, and turns on the write-ahead log. Limits the size
/// of the log on this connection.
fn prepare(connection: &Connection, path: &Path, opening: Opening) -> Result<(), Refusal> {
    let Opening { purpose, layout, .. } = opening;
    loop {
        let reading = Transaction::new_unchecked(connection, TransactionBehavior::Deferred)?;
        let version = inspect(&reading, path, layout)?;
        if connection.is_readonly("main")? {
            // The connection was writable before it read the header, so the header is the cause. SQLite
            // writes no such header.
            return Err(failure::damaged(path).into());
        }
        if version == layout.len() {
            break;
        }
        if purpose == Purpose::Examine {
            return Err(incomplete(path, version, layout.len()).into());
        }
        drop(reading);
        let writing = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
        // Another process may have run the step meanwhile.
        let version = inspect(&writing, path, layout)?;
        if let Some(step) = layout.get(version) {
            writing.execute_batch(step)?;
            writing.pragma_update(None, "application_id", APPLICATION_ID)?;
            writing.pragma_update(None, "user_version", version as i64 + 1)?;
        }
        writing.commit()?;
    }
    verify(connection, path)?;
    let mode: String = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))?;
    if !mode.eq_ignore_ascii_case("wal") {
        return Err(StoreError::configuration(format!(
            "the file {} is where SQLite cannot keep a write-ahead log; put it on a disk of this host",
            path.display()
        ))
        .into());
    }
    connection.pragma_update_and_check(None, "journal_size_limit", LOG_BYTES, |_| Ok(()))?;
    // This first read creates the write-ahead log, so the store can note the log's identity. If the file is
    // replaced later, the store recognizes the old file's log beside the new file.
    Ok(connection.query_row("PRAGMA data_version", (), |_| Ok(()))?)
}

/// The error for a file whose layout lacks steps.
fn incomplete(path: &Path, version: usize, complete: usize) -> StoreError {
    let path = path.display();
    StoreError::configuration(match version {
        0 => format!("the file {path} holds no records yet, and was left as it is"),
        older => format!(
            "the file {path} has layout {older}, and this idem reads {complete}; it was left as it is: use the idem of \
             the program that uses the file"
        ),
    })
}

/// Returns the version of the layout, or 0 if there is none yet. Refuses a file of another program or a newer
/// version.
fn inspect(connection: &Connection, path: &Path, layout: &[&str]) -> Result<usize, Refusal> {
    let number = |sql: &str| connection.query_row(sql, (), |row| row.get::<_, i64>(0));
    let application = number("PRAGMA application_id")?;
    let version = number("PRAGMA user_version")?;
    let objects = number("SELECT count(*) FROM sqlite_schema")?;
    let encoding: String = connection.query_row("PRAGMA encoding", (), |row| row.get(0))?;
    match application {
        APPLICATION_ID => {}
        0 if objects > 0 => return Err(foreign(path, "it has tables of another program").into()),
        0 if version == 0 => {}
        _ => return Err(foreign(path, "it belongs to another program").into()),
    }
    // In other encodings, some different keys would be the same text.
    if encoding != "UTF-8" {
        return Err(foreign(path, "its text is not UTF-8").into());
    }
    match usize::try_from(version) {
        Ok(version) if version <= layout.len() => Ok(version),
        _ => Err(StoreError::configuration(format!(
            "the file {} was made by a newer idem (layout {version}, and this one knows up to {}); upgrade this program",
            path.display(),
            layout.len()
        ))
        .into()),
    }
}

/// Fails if the tables are not those of the layout, or are damaged where they begin.
fn verify(connection: &Connection, path: &Path) -> Result<(), Refusal> {
    let touched = TOUCH.iter().try_for_each(|query| connection.query_row(query, (), |_| Ok(())));
    touched.and_then(|()| Session::prepare(connection).map(drop)).map_err(|error| {
        match failure::code(&error) {
            None | Some(ErrorCode::Unknown | ErrorCode::SchemaChanged) => {
                foreign(path, "its tables are not the ones idem made").into()
            }
            Some(_) => Refusal::Sqlite(error),
        }
    })
}
