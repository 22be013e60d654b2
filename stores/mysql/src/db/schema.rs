//! Finds the layout, creates it where it is missing, and refuses tables of another program.
//!
//! The server runs DDL outside of transactions, so each statement may be repeated: any number of processes may start at
//! once, and any may die halfway.

use sqlx::mysql::MySqlRow;

use super::failure::{Failure, Stage};
use super::session::{Answers, COMMIT, Session};
use crate::layout::{COMMENT, Names, VERSION};
use crate::rows::column;
use crate::statements::Statements;
use idem_core::StoreError;

/// The smallest `max_allowed_packet` that carries a record and its name.
const SMALLEST_PACKET: u64 = 256 << 10;

/// The properties of the server.
pub(crate) struct Server {
    /// The largest message that it takes, in bytes.
    pub(crate) max_packet: usize,
}

/// Checks that this store can use the server, and creates the layout if it is missing. With `must_exist` a missing layout
/// is an error.
pub(crate) async fn prepare(
    session: &mut Session,
    names: &Names,
    must_exist: bool,
) -> Result<Server, StoreError> {
    let server = look_at_server(session).await?;
    let statements = Statements::new(names.clone());
    match version(session, names, &statements).await? {
        Some(VERSION) => return Ok(server),
        Some(newer) if newer > VERSION => return Err(too_new(names, newer)),
        // Version 0: another process may be creating the layout.
        Some(_) if !must_exist => {}
        None if !must_exist => refuse_foreign(session, names, &statements).await?,
        _ => {
            return Err(StoreError::configuration(format!(
                "there is no table {} of idem; name another database or table",
                names.records
            )));
        }
    }
    for text in [names.create_meta(), names.create()] {
        // Where statements do not commit by themselves, only the next DDL would.
        run(session, format!("{text}; {COMMIT}")).await?;
    }
    Ok(server)
}

async fn run(session: &mut Session, text: String) -> Result<Answers, StoreError> {
    session.run(text, Stage::Open).await.map_err(Failure::error)
}

fn first(answers: &Answers) -> Option<&MySqlRow> {
    answers.rows(0).first()
}

async fn look_at_server(session: &mut Session) -> Result<Server, StoreError> {
    let answers = run(session, "SELECT VERSION(), @@max_allowed_packet".to_owned()).await?;
    let unreadable = || StoreError::configuration("the server did not return its version");
    let row = first(&answers).ok_or_else(unreadable)?;
    let version = column::<String>(row, 0, "version").map_err(|_| unreadable())?;
    let max_packet = column::<u64>(row, 1, "max_allowed_packet").map_err(|_| unreadable())?;
    if is_too_old(&version) {
        return Err(StoreError::configuration(format!(
            "the server is {version}; this store needs MySQL 8.0 or MariaDB 10.6, or later"
        )));
    }
    if max_packet < SMALLEST_PACKET {
        return Err(StoreError::configuration(format!(
            "the server's `max_allowed_packet` is {max_packet} and must be {SMALLEST_PACKET} or more"
        )));
    }
    Ok(Server { max_packet: usize::try_from(max_packet).unwrap_or(usize::MAX) })
}

/// Whether the server has no `SKIP LOCKED`. A server whose version cannot be parsed is accepted.
fn is_too_old(version: &str) -> bool {
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    let version = version.strip_prefix("5.5.5-").filter(|_| is_mariadb).unwrap_or(version);
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) < if is_mariadb { (10, 6) } else { (8, 0) },
        _ => false,
    }
}

/// The version of the present layout.
async fn version(
    session: &mut Session,
    names: &Names,
    statements: &Statements,
) -> Result<Option<u64>, StoreError> {
    let answers = match session.run(statements.version(), Stage::Open).await {
        Err(Failure::Absent(_)) => return Ok(None),
        answers => answers.map_err(Failure::error)?,
    };
    match first(&answers).and_then(|row| column::<u64>(row, 0, "value").ok()) {
        Some(version) => Ok(Some(version)),
        // Another process has made the table and not filled it yet.
        None if is_ours(session, &statements.meta_comment()).await? => Ok(Some(0)),
        None => Err(foreign(&names.meta)),
    }
}

async fn is_ours(session: &mut Session, comment: &str) -> Result<bool, StoreError> {
    let answers = run(session, comment.to_owned()).await?;
    Ok(first(&answers).and_then(|row| column::<String>(row, 0, "comment").ok()).as_deref() == Some(COMMENT))
}

/// Refuses a table of records without a meta table: idem creates the meta table first, so another program made it.
async fn refuse_foreign(
    session: &mut Session,
    names: &Names,
    statements: &Statements,
) -> Result<(), StoreError> {
    match session.run(format!("SELECT 1 FROM {} LIMIT 1", names.records), Stage::Open).await {
        Err(Failure::Absent(_)) => return Ok(()),
        found => found.map_err(Failure::error)?,
    };
    // Another process may have created both in between.
    match version(session, names, statements).await? {
        Some(_) => Ok(()),
        None => Err(foreign(&names.records)),
    }
}

fn foreign(table: &str) -> StoreError {
    StoreError::configuration(format!(
        "the table {table} is not idem's: it names no version of its layout; choose another name with `table`"
    ))
}

fn too_new(names: &Names, version: u64) -> StoreError {
    StoreError::configuration(format!(
        "the table {} has layout {version}, and this version of idem knows up to {VERSION}; use a newer idem",
        names.records
    ))
}

#[cfg(test)]
mod tests {
    use super::is_too_old;

    #[test]
    fn servers_without_the_statements_that_are_needed_are_told_from_those_that_have_them() {
        for version in ["5.7.44-log", "10.5.29-MariaDB", "5.5.5-10.5.8-MariaDB-log", "5.6.51"] {
            assert!(is_too_old(version), "{version}");
        }
        for version in [
            "8.0.36",
            "8.4.0-commercial",
            "9.1.0",
            "10.6.4-MariaDB",
            "10.11.19-MariaDB-0+deb12u1",
            "5.5.5-10.11.6-MariaDB-log",
            "11.4.2-MariaDB",
            "unknown",
        ] {
            assert!(!is_too_old(version), "{version}");
        }
    }
}
