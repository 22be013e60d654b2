//! Creates and migrates a layout, and refuses tables of another program.
//!
//! Safe when many processes start at once: one migrates under a lock, and the others find the work done. Does
//! not know what a layout contains.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Either, Executor as _, Row as _};

use super::connector::Connector;
use super::failure;
use super::identifier::Identifier;
use idem_core::StoreError;

/// The advisory lock of a migration, for all names of tables: "idem" in ASCII, twice.
const LOCK: i64 = 0x6964_656d_6964_656d;

/// How long a migration waits for a table before it tries again, in milliseconds.
const LOCK_TIMEOUT: u32 = 100;

/// Tables that belong together, and the meta table with their version.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The schema of the tables.
    pub(crate) schema: Identifier,
    /// The meta table, without its schema and as statements name it.
    pub(crate) meta_name: Identifier,
    pub(crate) meta: String,
    /// The main table, for errors.
    pub(crate) table: String,
    /// The statements that create the first version, and those that migrate each version to the next. Each writes its version.
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

/// The result of one exchange with the database.
struct Found {
    /// The schema to use: the given one, or the one in which the connection creates tables.
    schema: Option<String>,
    /// The session's lock timeout, in milliseconds.
    lock_timeout: Option<String>,
    /// The schema of the meta table, and the version in it.
    meta: Option<(String, Option<String>)>,
}

/// Creates the layout if it is missing, migrates an older one, and refuses a newer one. With `must_exist` it also refuses a missing
/// or an older one.
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
        // First without a lock: a user without the right to create tables can use those that exist.
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
    if prepared.as_ref().is_err_and(StoreError::is_transient) {
        // As where a standby was to make the tables.
        session.leave();
    }
    session.close(connector.timeout()).await;
    prepared
}

/// Looks for the layout in one exchange, to keep a cold start over a slow network short. Without a given schema it looks for the
/// table by its bare name, which may be found in another schema of the search path.
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

    /// Warns of a second table: two roles with different search paths would each use their own, and duplicates would run.
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

/// The version of the present layout.
async fn version(connection: &mut PgConnection, layout: &Layout) -> Result<Option<i64>, StoreError> {
    // Reads the catalogue, because `to_regclass` may return a result from before another process migrated.
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

/// Migrates. Uses no named statements, because a pooler may give the session to another client.
async fn migrate(connection: &mut PgConnection, layout: &Layout) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| failed(&error))?;
    // Waits for the advisory lock without a limit, because another process may take long to migrate. Waits for table locks only a
    // moment at a time, because all statements of all processes queue behind one that waits for an exclusive lock.
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

/// Creates the schema if it is missing. `IF NOT EXISTS` would need the right to create one even where it exists.
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
