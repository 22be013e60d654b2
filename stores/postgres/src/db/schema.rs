//! Creates and migrates a layout, and refuses tables of another program.
//!
//! Many processes may start at once. One of them migrates under a lock, and the others then find the new
//! layout. If a process is killed halfway, the next process continues with the version that is missing. No
//! index is built under a lock that stops claims. This module does not know what a layout contains.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use sqlx::postgres::{PgConnection, Postgres};
use sqlx::{AssertSqlSafe, Decode, Either, Executor as _, Row as _, Type};
use tokio::time::sleep;

use super::connector::Connector;
use super::failure;
use super::session::{Session, Statement};
use idem_core::StoreError;
use idem_store_kit::retry::retried_with_cause;
use idem_store_kit::sql::{Identifier, Session as _, foreign, too_new};

/// The advisory lock of migrations, for all names of tables: "idem" in ASCII, twice.
const LOCK: i64 = 0x6964_656d_6964_656d;

/// How long a migration waits for a table before it tries again, in milliseconds. The time is short, because
/// all statements of all processes queue behind a statement that waits for an exclusive lock.
const LOCK_TIMEOUT: u32 = 100;

/// The row of the meta table with the present version.
const VERSION: &str = "schema_version";
/// The row with the version whose statements have run, and whose indexes may be missing.
const STATEMENTS: &str = "statements";

/// How long to wait before looking again whether another process has migrated.
const PAUSE: Duration = Duration::from_millis(50);

/// The schema and the main table of a layout. The names of all its objects follow from these two.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The schema of the tables.
    pub schema: Identifier,
    /// The main table. Its name is the prefix of the other names.
    pub table: Identifier,
}

impl Tables {
    /// The name of the object with this suffix, with its schema and in quotes.
    #[must_use]
    pub fn named(&self, suffix: &str) -> String {
        format!("{}.{}", self.schema.quoted('"'), self.table.with(suffix).quoted('"'))
    }
}

/// The statements and indexes of a version of a layout.
#[derive(Debug)]
pub struct Version {
    /// The statements run once, in one transaction, and must take only a moment, whatever the size of a
    /// table. Processes of the previous version continue to work meanwhile. The statements of the first
    /// version create the meta table.
    pub statements: String,
    /// The indexes are built after the statements, while other processes continue to work.
    pub indexes: Vec<Index>,
}

/// An index of a layout.
#[derive(Debug)]
pub struct Index {
    /// The name of the index without its schema, which is the schema of the table.
    pub name: Identifier,
    /// The table, with its schema and in quotes.
    pub table: String,
    /// The columns, as the statement that builds the index needs them.
    pub columns: String,
}

/// Names of objects, and the statements that make them.
pub trait Named: Sized {
    /// The names of these tables and of the objects that belong to them.
    fn of(tables: &Tables) -> Self;
    /// The first version of the layout, and the changes from each version to the next.
    fn versions(&self) -> Vec<Version>;
}

/// The layout of tables.
struct Layout {
    tables: Tables,
    versions: Vec<Version>,
}

impl Layout {
    /// The version that this code reads and writes.
    fn version(&self) -> i64 {
        i64::try_from(self.versions.len()).unwrap_or(i64::MAX)
    }

    fn table(&self) -> String {
        self.tables.named("")
    }

    fn meta(&self) -> String {
        self.tables.named("_meta")
    }

    /// The statement that sets a row of the meta table: the present version, or the version whose statements
    /// have run.
    fn set(&self, name: &str, number: usize) -> String {
        format!(
            "INSERT INTO {} (name, value) VALUES ('{name}', {number}) \
             ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            self.meta()
        )
    }
}

/// The result of [`find`].
struct Found {
    /// The given schema, or else the schema in which the connection creates tables.
    schema: Option<String>,
    /// The schema in which the meta table was found, and the version in that table.
    meta: Option<(String, Option<String>)>,
}

/// The state of a migration.
enum State {
    Ready,
    /// Not ready yet: this process or another one still works on it.
    Continues,
    /// The indexes of the version at this position in `Layout::versions`, counted from 0, are missing. The
    /// session has the lock of migrations.
    LacksIndexes(usize),
}

/// Creates the layout if it is missing, migrates an older layout, and refuses a newer one. With `must_exist`,
/// it also refuses a missing or an older layout.
///
/// The building of an index has no time limit, and new processes wait for it. Each other part of the
/// migration ends within the connector's timeout.
pub(super) async fn prepare<N: Named>(
    connector: &Connector,
    schema: Option<&Identifier>,
    table: &Identifier,
    must_exist: bool,
) -> Result<(N, Tables), StoreError> {
    loop {
        let advancing = || advance::<N>(connector, schema, table, must_exist);
        let (layout, state, lock) = retried_with_cause(connector.timeout(), advancing).await?;
        match state {
            State::Ready => return Ok((N::of(&layout.tables), layout.tables)),
            State::Continues => sleep(PAUSE).await,
            State::LacksIndexes(version) => {
                let built = build_indexes(connector, &layout, version).await;
                if let Some(lock) = lock {
                    lock.close(connector.timeout()).await;
                }
                built?;
            }
        }
    }
}

/// Does the next part of the migration. Returns the session if it holds the lock of migrations.
async fn advance<N: Named>(
    connector: &Connector,
    schema: Option<&Identifier>,
    table: &Identifier,
    must_exist: bool,
) -> Result<(Layout, State, Option<Session>), StoreError> {
    let mut session = connector.connect().await?;
    let advanced = async {
        let found = find(session.connection(), schema, table).await?;
        let schema = found.schema.clone().map(Identifier::existing).ok_or_else(|| {
            StoreError::configuration(
                "no schema of the connection's search_path exists; name one with `schema`",
            )
        })?;
        let tables = Tables { schema, table: table.clone() };
        let versions = N::of(&tables).versions();
        let layout = Layout { tables, versions };
        // If the layout is ready, nothing is locked or created. So a user without the right to create tables
        // can use existing tables.
        let state = match (found.version(&layout)?, must_exist) {
            (Some(version), _) if version == layout.version() => State::Ready,
            (Some(newer), _) if newer > layout.version() => {
                return Err(too_new(&layout.table(), newer, layout.version()));
            }
            (older, true) => return Err(found.refused(&layout, older)),
            (older, false) => {
                found.warn_of_another(older, &layout);
                migrate(session.connection(), &layout).await?
            }
        };
        Ok((layout, state))
    };
    let advanced = advanced.await;
    if advanced.as_ref().is_err_and(StoreError::is_transient) {
        // The server may be, for example, a standby, which cannot create the tables. So the next try begins
        // with another server.
        session.leave();
    }
    match advanced {
        Ok((layout, state @ State::LacksIndexes(_))) => Ok((layout, state, Some(session))),
        advanced => {
            session.close(connector.timeout()).await;
            advanced.map(|(layout, state)| (layout, state, None))
        }
    }
}

/// Looks for the layout in one exchange, to keep a cold start over a slow network short. Without a given
/// schema, looks for the meta table by its bare name. So the meta table may be in any schema of the search
/// path.
async fn find(
    connection: &mut PgConnection,
    schema: Option<&Identifier>,
    table: &Identifier,
) -> Result<Found, StoreError> {
    let meta = table.with("_meta").quoted('"');
    let meta = schema.map_or_else(|| meta.clone(), |schema| format!("{}.{meta}", schema.quoted('"')));
    let text = format!(
        "SELECT current_schema()::text; \
         SELECT n.nspname::text, (SELECT value::text FROM {meta} WHERE name = '{VERSION}') \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '{}'::regclass",
        meta.replace('\'', "''")
    );
    let mut found = Found { schema: schema.map(|schema| schema.as_str().to_owned()), meta: None };
    let mut first = true;
    let mut answers = connection.fetch_many(AssertSqlSafe(text));
    loop {
        match answers.try_next().await {
            Ok(Some(Either::Right(row))) if first => {
                first = false;
                let current: Option<String> = row.try_get(0).ok().flatten();
                found.schema = found.schema.or(current);
            }
            Ok(Some(Either::Right(row))) => {
                if let Ok(schema) = row.try_get::<String, _>(0) {
                    found.meta = Some((schema, row.try_get(1).ok().flatten()));
                }
            }
            Ok(Some(Either::Left(_))) => {}
            Ok(None) => return Ok(found),
            // There is no such table, or no such schema.
            Err(error) if !first && failure::has_code(&error, &["42P01", "3F000"]) => return Ok(found),
            Err(error) => return Err(failed(&error)),
        }
    }
}

impl Found {
    /// The version of the layout in the schema of `layout`; `None` if this schema has no meta table.
    fn version(&self, layout: &Layout) -> Result<Option<i64>, StoreError> {
        match &self.meta {
            Some((there, version)) if there == layout.tables.schema.as_str() => {
                let version = version.as_deref().and_then(|version| version.parse().ok());
                version.ok_or_else(|| foreign(&layout.meta())).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Another schema of the search path in which a table of this name exists.
    fn elsewhere(&self) -> Option<&str> {
        let (there, _) = self.meta.as_ref()?;
        Some(there.as_str()).filter(|there| self.schema.as_deref() != Some(*there))
    }

    fn refused(&self, layout: &Layout, older: Option<i64>) -> StoreError {
        let (table, ours) = (layout.table(), layout.version());
        StoreError::configuration(match (older, self.elsewhere()) {
            (Some(older), _) => format!(
                "the table {table} has layout {older}, and this version of idem reads {ours}; it was left as it is: \
                 use the idem of the program that uses the table"
            ),
            (None, Some(schema)) => format!(
                "there is no table {table} of idem's, but one of that name in the schema {schema}; name the schema"
            ),
            (None, None) => {
                format!("there is no table {table} of idem's in this database; name another schema or table")
            }
        })
    }

    /// Warns of a second table. Two roles with different search paths would each use their own table, and
    /// duplicates would run.
    fn warn_of_another(&self, older: Option<i64>, layout: &Layout) {
        if let (None, Some(schema)) = (older, self.elsewhere()) {
            tracing::warn!(
                target: "idem",
                event = "second_table",
                table = layout.table(),
                schema,
                "a table of the same name exists in another schema of the search path: if other processes use that \
                 one, name the schema; duplicates between two tables are not found"
            );
        }
    }
}

fn failed(error: &sqlx::Error) -> StoreError {
    failure::of_statement(error).error()
}

/// The version of the present layout.
async fn version(connection: &mut PgConnection, layout: &Layout) -> Result<Option<i64>, StoreError> {
    // Reads the catalogue, because `to_regclass` may return a result from before another process migrated.
    let is_there = sqlx::query(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2)",
    )
    .bind(layout.tables.schema.as_str().to_owned())
    .bind(layout.tables.table.with("_meta").as_str().to_owned());
    if value(connection, is_there).await? != Some(true) {
        return Ok(None);
    }
    number(connection, layout, VERSION).await?.ok_or_else(|| foreign(&layout.meta())).map(Some)
}

/// The number in a row of the meta table.
async fn number(
    connection: &mut PgConnection,
    layout: &Layout,
    name: &str,
) -> Result<Option<i64>, StoreError> {
    let text = format!("SELECT value FROM {} WHERE name = '{name}'", layout.meta());
    value(connection, sqlx::query(AssertSqlSafe(text))).await
}

/// The first value that a statement returns. The statement gets no name on the server.
async fn value<T>(connection: &mut PgConnection, statement: Statement) -> Result<Option<T>, StoreError>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    let rows = connection.fetch_all(statement.persistent(false)).await.map_err(|error| failed(&error))?;
    Ok(rows.first().and_then(|row| row.try_get(0).ok()))
}

/// Creates the layout, or runs the statements of the next version. Uses no named statements, because a pooler
/// may give the session to another client.
async fn migrate(connection: &mut PgConnection, layout: &Layout) -> Result<State, StoreError> {
    if !lock(connection).await? {
        return Ok(State::Continues);
    }
    let Some(older) = version(connection, layout).await? else {
        create_schema(connection, &layout.tables.schema).await?;
        for version in &layout.versions {
            execute(connection, version.statements.clone()).await?;
            for Index { name, table, columns } in &version.indexes {
                let create = format!("CREATE INDEX {} ON {table} ({columns})", name.quoted('"'));
                execute(connection, create).await?;
            }
        }
        execute(connection, format!("{}; COMMIT", layout.set(VERSION, layout.versions.len()))).await?;
        return Ok(State::Ready);
    };
    let done = usize::try_from(older).unwrap_or(usize::MAX);
    // Another process was faster. The next look checks the version that the other process made.
    let Some(next) = layout.versions.get(done) else { return Ok(State::Continues) };
    let begun = number(connection, layout, STATEMENTS).await?;
    if begun.is_some_and(|begun| begun > older) {
        return Ok(State::LacksIndexes(done));
    }
    execute(connection, next.statements.clone()).await?;
    // If the version has indexes, these are built later, when the statements are committed and have released
    // their locks. Until then, only the row `STATEMENTS` names the version.
    let name = if next.indexes.is_empty() { VERSION } else { STATEMENTS };
    execute(connection, format!("{}; COMMIT", layout.set(name, done + 1))).await?;
    Ok(State::Continues)
}

/// Begins a transaction that holds the lock of migrations. Returns whether the session has the lock.
///
/// Does not wait for the lock, because the wait could be a deadlock. An index that another process builds is
/// ready only after all earlier statements have ended, including a statement that waits for the lock.
async fn lock(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let begin = format!(
        "BEGIN; SET LOCAL lock_timeout = {LOCK_TIMEOUT}; SET LOCAL idle_in_transaction_session_timeout = 0; \
         SELECT pg_try_advisory_xact_lock({LOCK})"
    );
    let row = connection.fetch_one(AssertSqlSafe(begin)).await.map_err(|error| failed(&error))?;
    Ok(row.try_get(0).unwrap_or(false))
}

async fn execute(connection: &mut PgConnection, statements: String) -> Result<(), StoreError> {
    connection.execute(AssertSqlSafe(statements)).await.map(drop).map_err(|error| failed(&error))
}

/// Builds the indexes of a version, and then records the version. Other processes continue to work meanwhile.
async fn build_indexes(connector: &Connector, layout: &Layout, version: usize) -> Result<(), StoreError> {
    let mut session = connector.connect().await?;
    let connection = session.connection();
    let built = async {
        if !connector.opener.is_shared() {
            execute(connection, "SET statement_timeout = 0; SET lock_timeout = 0".to_owned()).await?;
        }
        for index in layout.versions.get(version).map_or(&[][..], |version| &version.indexes) {
            tracing::info!(
                target: "idem",
                event = "building_index",
                table = layout.table(),
                index = index.name.as_str(),
                "the layout is migrated: this process waits for an index, and those that run do not"
            );
            build(connection, layout, index).await?;
        }
        execute(connection, layout.set(VERSION, version + 1)).await
    };
    let built = built.await;
    session.close(connector.timeout()).await;
    built
}

/// Builds an index, unless it exists. An incomplete index of a killed process is built again.
async fn build(connection: &mut PgConnection, layout: &Layout, index: &Index) -> Result<(), StoreError> {
    let Index { name, table, columns } = index;
    // Waits if the server still builds the index for a process that is gone.
    execute(connection, format!("BEGIN; LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")).await?;
    let valid = sqlx::query(
        "SELECT i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
         JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2",
    )
    .bind(layout.tables.schema.as_str().to_owned())
    .bind(name.as_str().to_owned());
    let valid = value(connection, valid).await?;
    execute(connection, "COMMIT".to_owned()).await?;
    let name = name.quoted('"');
    match valid {
        Some(true) => return Ok(()),
        Some(false) => {
            execute(
                connection,
                format!("DROP INDEX CONCURRENTLY {}.{name}", layout.tables.schema.quoted('"')),
            )
            .await?;
        }
        None => {}
    }
    execute(connection, format!("CREATE INDEX CONCURRENTLY {name} ON {table} ({columns})")).await
}

/// Creates the schema if it is missing. `IF NOT EXISTS` would need the right to create schemas even if the
/// schema exists.
async fn create_schema(connection: &mut PgConnection, schema: &Identifier) -> Result<(), StoreError> {
    let is_there = sqlx::query("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)");
    match value(connection, is_there.bind(schema.as_str().to_owned())).await? {
        Some(true) => Ok(()),
        _ => execute(connection, format!("CREATE SCHEMA {}", schema.quoted('"'))).await,
    }
}
