//! Makes and migrates a layout, and refuses one that is not ours.
//!
//! Safe when many processes start at once: one migrates under a lock, and the others find the work done. It does
//! not know what a layout contains.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};

use super::connector::Connector;
use super::failure;
use super::identifier::Identifier;
use idem_core::StoreError;

/// The lock that those hold who migrate, whatever their names: "idem" in ASCII, twice.
const LOCK: i64 = 0x6964_656d_6964_656d;

/// How long a migration waits for a table at a time, in milliseconds; then it tries again.
const LOCK_TIMEOUT: u32 = 100;

/// Tables that belong together, and a table of theirs that says their version.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Where they are.
    pub(crate) schema: Identifier,
    /// What holds the version, without its schema and as statements name it.
    pub(crate) meta_name: Identifier,
    pub(crate) meta: String,
    /// The main table, for errors.
    pub(crate) table: String,
    /// What leads from nothing to the first version, and from each to the next; each puts its version down.
    pub(crate) migrations: Vec<String>,
}

impl Layout {
    /// The version that this code reads and writes.
    fn version(&self) -> i64 {
        i64::try_from(self.migrations.len()).unwrap_or(i64::MAX)
    }
}

/// Names of objects, and the layout that makes them.
pub(crate) trait Named: Sized {
    fn named(schema: &Identifier, table: &Identifier) -> Self;
    fn layout(&self) -> Layout;
    /// The main table as statements name it.
    fn table(&self) -> &str;
}

/// What one exchange with the database finds.
struct Found {
    /// The schema to use: the one that was asked for, or the one that the connection makes its tables in.
    schema: Option<String>,
    /// What the session takes for its lock timeout, in milliseconds.
    lock_timeout: Option<String>,
    /// Where the table of the version is and what it holds.
    meta: Option<(String, Option<String>)>,
}

/// Makes the layout where it is absent or older, and refuses a newer one. If it `must_exist`, refuses an absent or an
/// older one too.
pub(super) async fn prepare<N: Named>(
    connector: &Connector,
    schema: Option<&Identifier>,
    table: &Identifier,
    must_exist: bool,
) -> Result<N, StoreError> {
    let mut session = connector.connect().await?;
    let prepared = async {
        let found = find(session.connection(), schema, table).await?;
        if !connector.has_set(found.lock_timeout.as_deref()) {
            connector.share();
        }
        let schema = found.schema.clone().map(Identifier::existing).ok_or_else(|| {
            StoreError::configuration(
                "no schema of the connection's search_path exists; name one with `schema`",
            )
        })?;
        let names = N::named(&schema, table);
        let layout = names.layout();
        // Without a lock first: a user that may not make tables can use those that exist.
        match (found.version(&schema, &layout)?, must_exist) {
            (Some(version), _) if version == layout.version() => {}
            (Some(newer), _) if newer > layout.version() => return Err(too_new(&layout, newer)),
            (older, true) => return Err(found.refused(&layout, older)),
            (older, false) => {
                found.warn_of_another(older, &layout);
                migrate(session.connection(), &layout).await?;
            }
        }
        Ok(names)
    };
    let prepared = prepared.await;
    session.close(connector.timeout()).await;
    prepared
}

/// Asks in one exchange, as a cold start over a long line is slow enough. The table is found by its bare name where no
/// schema is given, which may lead to another schema of the search path.
async fn find(
    connection: &mut PgConnection,
    schema: Option<&Identifier>,
    table: &Identifier,
) -> Result<Found, StoreError> {
    let meta = table.with("_meta").quoted();
    let meta = schema.map_or_else(|| meta.clone(), |schema| format!("{}.{meta}", schema.quoted()));
    let text = format!(
        "SELECT current_schema()::text, (SELECT setting FROM pg_settings WHERE name = 'lock_timeout'); \
         SELECT n.nspname::text, (SELECT value::text FROM {meta} WHERE name = 'schema_version') \
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '{}'::regclass",
        meta.replace('\'', "''")
    );
    let mut found =
        Found { schema: schema.map(|schema| schema.as_str().to_owned()), lock_timeout: None, meta: None };
    let mut first = true;
    let mut answers = connection.fetch_many(AssertSqlSafe(text));
    loop {
        match answers.try_next().await {
            Ok(Some(Either::Right(row))) if first => {
                first = false;
                let current: Option<String> = row.try_get(0).ok().flatten();
                found.schema = found.schema.or(current);
                found.lock_timeout = row.try_get(1).ok().flatten();
            }
            Ok(Some(Either::Right(row))) => {
                if let Ok(schema) = row.try_get::<String, _>(0) {
                    found.meta = Some((schema, row.try_get(1).ok().flatten()));
                }
            }
            Ok(Some(Either::Left(_))) => {}
            Ok(None) => return Ok(found),
            // No such table, no such schema.
            Err(error) if !first && failure::has_code(&error, &["42P01", "3F000"]) => return Ok(found),
            Err(error) => return Err(failed(&error)),
        }
    }
}

impl Found {
    /// The version of the layout in this schema.
    fn version(&self, schema: &Identifier, layout: &Layout) -> Result<Option<i64>, StoreError> {
        match &self.meta {
            Some((there, version)) if there == schema.as_str() => {
                version_of(layout, version.as_deref()).map(Some)
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
        let (table, ours) = (&layout.table, layout.version());
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

    /// Two roles with different search paths would use two tables, and run duplicates of both.
    fn warn_of_another(&self, older: Option<i64>, layout: &Layout) {
        if let (None, Some(schema)) = (older, self.elsewhere()) {
            tracing::warn!(
                target: "idem",
                event = "second_table",
                table = layout.table.as_str(),
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

fn too_new(layout: &Layout, version: i64) -> StoreError {
    StoreError::configuration(format!(
        "the table {} has layout {version}, and this version of idem knows up to {}; use a newer idem",
        layout.table,
        layout.version()
    ))
}

/// The version of the layout that is there.
async fn version(connection: &mut PgConnection, layout: &Layout) -> Result<Option<i64>, StoreError> {
    // By reading the catalogue: `to_regclass` may still answer what it said before another migrated.
    let found = sqlx::query(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2)",
    )
    .bind(layout.schema.as_str())
    .bind(layout.meta_name.as_str())
    .persistent(false);
    let rows = found.fetch_all(&mut *connection).await.map_err(|error| failed(&error))?;
    if !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(None);
    }
    let statement = format!("SELECT value::text FROM {} WHERE name = 'schema_version'", layout.meta);
    let rows = connection.fetch_all(AssertSqlSafe(statement)).await.map_err(|error| failed(&error))?;
    let version: Option<String> = rows.first().and_then(|row| row.try_get(0).ok()).flatten();
    version_of(layout, version.as_deref()).map(Some)
}

fn version_of(layout: &Layout, value: Option<&str>) -> Result<i64, StoreError> {
    value.and_then(|value| value.parse().ok()).ok_or_else(|| {
        StoreError::configuration(format!(
            "the table {} is not idem's: it names no version of its layout; choose another name with `table`",
            layout.meta
        ))
    })
}

/// Names no statement on the server, as a pooler would give the session with it to another client.
async fn migrate(connection: &mut PgConnection, layout: &Layout) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| failed(&error))?;
    // Another process may take longer to migrate than a lock is waited for elsewhere. The tables are another matter: all
    // statements of all processes queue behind one that waits for an exclusive lock, so it waits for a moment only.
    let begin = format!(
        "SET LOCAL lock_timeout = 0; SELECT pg_advisory_xact_lock({LOCK}); SET LOCAL lock_timeout = {LOCK_TIMEOUT}"
    );
    transaction.execute(AssertSqlSafe(begin)).await.map_err(|error| failed(&error))?;
    match version(&mut transaction, layout).await? {
        Some(version) if version == layout.version() => {}
        Some(newer) if newer > layout.version() => return Err(too_new(layout, newer)),
        older => {
            if older.is_none() {
                create_schema(&mut transaction, &layout.schema).await?;
            }
            let done = usize::try_from(older.unwrap_or(0)).unwrap_or(0);
            for migration in layout.migrations.iter().skip(done) {
                let statements = AssertSqlSafe(migration.clone());
                transaction.execute(statements).await.map_err(|error| failed(&error))?;
            }
        }
    }
    transaction.commit().await.map_err(|error| failed(&error))
}

/// Makes the schema if it is absent: to ask for what is there may need a right that the user has not.
async fn create_schema(connection: &mut PgConnection, schema: &Identifier) -> Result<(), StoreError> {
    let found = sqlx::query("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)")
        .bind(schema.as_str())
        .persistent(false)
        .fetch_all(&mut *connection)
        .await
        .map_err(|error| failed(&error))?;
    if !found.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        let create = format!("CREATE SCHEMA {}", schema.quoted());
        connection.execute(AssertSqlSafe(create)).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}
