//! Finds the layout, creates it or migrates it to the newest version, and refuses tables of another program.
//!
//! The server runs DDL outside of transactions, any number of processes may start at once, and any of them
//! may die halfway. So each statement must be repeatable.

use std::cmp::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::connector::Connector;
use super::failure::{Failure, Stage};
use super::session::{Answers, COMMIT, Server, Session};
use crate::layout::{COMMENT, Names};
use crate::rows::column;
use idem_core::StoreError;
use idem_store_kit::retry::retried_with_cause;
use idem_store_kit::sql::{Session as _, foreign, too_new};

/// The smallest `max_allowed_packet` that carries a record and its name.
const SMALLEST_PACKET: usize = 256 << 10;

/// The pause before a failed migration is tried again. A migration fails, for example, while a transaction
/// uses a table.
const PAUSE: Duration = Duration::from_millis(500);

/// Checks that this store can use the server, and migrates the tables to the last of these layouts. With
/// `must_exist`, it is an error if the tables do not have this layout.
///
/// A statement that changes a table has no time limit, and other processes continue meanwhile. Each other
/// part of the migration ends within the connector's timeout.
pub(crate) async fn prepare(
    connector: &Connector,
    names: &Names,
    layouts: &[Vec<String>],
    must_exist: bool,
) -> Result<Server, StoreError> {
    let begin = Instant::now();
    loop {
        let looking = || async {
            let mut session = connector.connect().await?;
            let layout = find(&mut session, names, layouts.len(), must_exist).await;
            session.close(connector.timeout()).await;
            layout
        };
        let (server, version) = retried_with_cause(connector.timeout(), looking).await?;
        if version == Some(layouts.len()) {
            return Ok(server);
        }
        let mut session = retried_with_cause(connector.timeout(), || connector.connect()).await?;
        let migrated = migrate(connector, &mut session, names, layouts, version.unwrap_or_default()).await;
        session.close(connector.timeout()).await;
        match migrated {
            Err(error) if error.is_transient() && begin.elapsed() < connector.timeout() => sleep(PAUSE).await,
            migrated => return migrated.map(|()| server),
        }
    }
}

/// The server, and the version of the present layout; `None` if there are no tables.
async fn find(
    session: &mut Session,
    names: &Names,
    newest: usize,
    must_exist: bool,
) -> Result<(Server, Option<usize>), StoreError> {
    check(session.server())?;
    let version = version(session, names).await?;
    match version.map(|version| version.cmp(&newest)) {
        Some(Ordering::Greater) => return Err(too_new(&names.records, version.unwrap_or_default(), newest)),
        Some(Ordering::Less) | None if must_exist => {
            return Err(StoreError::configuration(format!(
                "there is no table {} of idem with layout {newest}; name another database or table",
                names.records
            )));
        }
        None => refuse_foreign(session, names).await?,
        // The version may be 0: then another process may be creating the first layout.
        Some(Ordering::Equal | Ordering::Less) => {}
    }
    Ok((session.server().clone(), version))
}

/// Migrates the tables from this version of the layout to the newest.
async fn migrate(
    connector: &Connector,
    session: &mut Session,
    names: &Names,
    layouts: &[Vec<String>],
    version: usize,
) -> Result<(), StoreError> {
    let time = connector.timeout();
    let late = |_| Err(Failure::late(time).error());
    // The explicit commit is for sessions without autocommit, where otherwise only the next DDL would commit.
    let meta = run(session, format!("{}; {COMMIT}", names.create_meta()));
    timeout(time, meta).await.unwrap_or_else(late)?;
    for (layout, number) in layouts.iter().zip(1..).skip(version) {
        for statement in layout {
            session.alter(statement).await.map_err(Failure::error)?;
        }
        let reached = run(session, format!("{}; {COMMIT}", names.reached(number)));
        timeout(time, reached).await.unwrap_or_else(late)?;
    }
    Ok(())
}

async fn run(session: &mut Session, text: String) -> Result<Answers, StoreError> {
    session.run(text, Stage::Open).await.map_err(Failure::error)
}

fn check(server: &Server) -> Result<(), StoreError> {
    let Server { version, max_packet, .. } = server;
    if is_too_old(version) {
        return Err(StoreError::configuration(format!(
            "the server is {version}; this store needs MySQL 8.0 or MariaDB 10.6, or later"
        )));
    }
    if *max_packet < SMALLEST_PACKET {
        return Err(StoreError::configuration(format!(
            "the server's `max_allowed_packet` is {max_packet} and must be {SMALLEST_PACKET} or more"
        )));
    }
    Ok(())
}

/// Whether the server is too old for `SKIP LOCKED`. A server whose version cannot be parsed is accepted.
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
async fn version(session: &mut Session, names: &Names) -> Result<Option<usize>, StoreError> {
    let answers = match session.run(names.version(), Stage::Open).await {
        Err(Failure::Absent(_)) => return Ok(None),
        answers => answers.map_err(Failure::error)?,
    };
    match answers.rows(0).first().and_then(|row| column::<u64>(row, 0, "value").ok()) {
        Some(version) => Ok(Some(usize::try_from(version).unwrap_or(usize::MAX))),
        // Either another process has created the table but not filled it yet, or the table belongs to another
        // program. The table's comment shows which.
        None => {
            let answers = run(session, names.meta_comment()).await?;
            let comment = answers.rows(0).first().and_then(|row| column::<String>(row, 0, "comment").ok());
            if comment.as_deref() == Some(COMMENT) { Ok(Some(0)) } else { Err(foreign(&names.meta)) }
        }
    }
}

/// Refuses a table of records without a meta table. idem creates the meta table first, so another program
/// made such a table.
async fn refuse_foreign(session: &mut Session, names: &Names) -> Result<(), StoreError> {
    match session.run(format!("SELECT 1 FROM {} LIMIT 1", names.records), Stage::Open).await {
        Err(Failure::Absent(_)) => return Ok(()),
        response => response.map_err(Failure::error)?,
    };
    // Another process may have created both tables in between.
    match version(session, names).await? {
        Some(_) => Ok(()),
        None => Err(foreign(&names.records)),
    }
}

#[cfg(test)]
mod tests {
    use idem_test_servers::MariaDb;

    use super::*;
    use crate::statements::test_session::{names_of, opened, setting_of};

    async fn prepared(server: &MariaDb, layouts: &[Vec<String>], must_exist: bool) -> Result<(), StoreError> {
        prepare(&setting_of(server).connector, &names_of(server), layouts, must_exist).await.map(drop)
    }

    #[tokio::test]
    async fn tables_are_brought_to_the_next_layout_by_many_at_once_and_from_halfway() {
        let server = MariaDb::start();
        let names = names_of(&server);
        let (first, records) = (names.layouts(), &names.records);
        let mut next = first.clone();
        next.push(vec![
            format!(
                "ALTER TABLE {records} ADD COLUMN extra INT UNSIGNED NOT NULL DEFAULT 7, ALGORITHM = INSTANT"
            ),
            format!("ALTER TABLE {records} ADD KEY extra (extra), ALGORITHM = INPLACE, LOCK = NONE"),
            format!("ALTER TABLE {records} DROP KEY due, ALGORITHM = INPLACE, LOCK = NONE"),
        ]);
        let version = || server.sql("select value from records_meta where name = 'schema_version'");
        let keys = || {
            server.sql("select group_concat(distinct index_name order by index_name) from information_schema.statistics where table_name = 'records'")
        };
        let all = futures_util::future::join_all((0..4).map(|_| prepared(&server, &first, false))).await;
        assert!(all.iter().all(Result::is_ok), "{all:?}");
        assert_eq!((version(), keys()), ("1".to_owned(), "due,PRIMARY".to_owned()));
        for halfway in 0..=3 {
            for statement in &next[1][..halfway] {
                let _ = server.sql(statement);
            }
            assert!(prepared(&server, &next, true).await.is_err(), "a tool changes nothing");
            let all = futures_util::future::join_all((0..4).map(|_| prepared(&server, &next, false))).await;
            assert!(all.iter().all(Result::is_ok), "{all:?}");
            assert_eq!((version(), keys()), ("2".to_owned(), "extra,PRIMARY".to_owned()));
            prepared(&server, &next, true).await.unwrap();
            let error = prepared(&server, &first, false).await.unwrap_err();
            assert!(error.to_string().contains("newer"), "{error}");
            let _ = server.sql(
                "alter table records drop column extra, add key due (purge_at); \
                 update records_meta set value = 1 where name = 'schema_version'",
            );
        }
    }

    /// A migration must not wait for long: all statements of all processes queue behind a statement that
    /// waits for an exclusive lock of the table.
    #[tokio::test]
    async fn a_migration_does_not_wait_for_a_transaction_that_uses_the_table() {
        let server = MariaDb::start();
        let (mut other, _) = opened(&server).await;
        let names = names_of(&server);
        let mut next = names.layouts();
        let records = &names.records;
        next.push(vec![format!(
            "ALTER TABLE {records} ADD COLUMN extra INT UNSIGNED NOT NULL DEFAULT 7, ALGORITHM = INSTANT"
        )]);
        let looks = format!("START TRANSACTION; SELECT COUNT(*) FROM {records}");
        other.run(looks, Stage::Open).await.unwrap();
        let migrating = tokio::time::timeout(Duration::from_secs(20), prepared(&server, &next, false));
        let error = migrating.await.expect("it gives up").unwrap_err();
        assert!(error.is_transient(), "{error}");
        // The migration does not block other statements, either.
        let read = server.sql(&format!("select count(*) from {records}; {}", names.version()));
        assert_eq!(read, "0\n1");
        other.roll_back().await;
        prepared(&server, &next, false).await.unwrap();
        assert_eq!(server.sql("select value from records_meta where name = 'schema_version'"), "2");
    }

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
