//! How a layout comes into the database, and how one is told that is not ours.
//!
//! Safe when many processes start at once: one migrates under a lock, and the others find it done. It does
//! not know what is in a layout.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::failure;
use super::names::Identifier;
use crate::error::StoreError;

/// The lock that those hold who migrate, whatever their names: "idem" in ASCII, twice.
const LOCK: i64 = 0x6964_656d_6964_656d;

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

/// The schema to use: this one, or the one that the connection makes its tables in.
pub(crate) async fn schema_to_use(
    connection: &mut PgConnection,
    schema: Option<Identifier>,
) -> Result<Identifier, StoreError> {
    match schema {
        Some(schema) => Ok(schema),
        None => current_schema(connection).await,
    }
}

/// Makes the layout where it is absent or older, and refuses a newer one.
pub(crate) async fn prepare(connection: &mut PgConnection, layout: &Layout) -> Result<(), StoreError> {
    // Without a lock first: a user that may not make tables can use those that are there.
    match version(connection, layout).await? {
        Some(version) if version == layout.version() => Ok(()),
        Some(newer) if newer > layout.version() => Err(too_new(layout, newer)),
        Some(_) | None => migrate(connection, layout).await,
    }
}

/// Finds the layout, and refuses what would have to be made or migrated.
pub(super) async fn find(connection: &mut PgConnection, layout: &Layout) -> Result<(), StoreError> {
    let (table, ours) = (&layout.table, layout.version());
    match version(connection, layout).await? {
        Some(version) if version == ours => Ok(()),
        Some(newer) if newer > ours => Err(too_new(layout, newer)),
        Some(older) => Err(StoreError::configuration(format!(
            "the table {table} has layout {older}, and this version of idem reads {ours}; it was left as it is: use \
             the idem of the program that uses the table"
        ))),
        None => Err(StoreError::configuration(format!(
            "there is no table {table} of idem's in this database; name another schema or table"
        ))),
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

/// The one that the connection makes its tables in.
async fn current_schema(connection: &mut PgConnection) -> Result<Identifier, StoreError> {
    let rows = connection.fetch_all("SELECT current_schema()::text").await.map_err(|error| failed(&error))?;
    let name: Option<String> = rows.first().and_then(|row| row.try_get(0).ok()).flatten();
    name.map(Identifier::existing).ok_or_else(|| {
        StoreError::configuration("no schema of the connection's search_path exists; name one with `schema`")
    })
}

/// The version of the layout that is there.
async fn version(connection: &mut PgConnection, layout: &Layout) -> Result<Option<i64>, StoreError> {
    // By reading the catalogue: `to_regclass` may still answer what it said before another migrated.
    let found = sqlx::query(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2)",
    )
    .bind(layout.schema.as_str())
    .bind(layout.meta_name.as_str());
    let rows = found.fetch_all(&mut *connection).await.map_err(|error| failed(&error))?;
    if !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(None);
    }
    let statement = format!("SELECT value FROM {} WHERE name = 'schema_version'", layout.meta);
    let rows = connection.fetch_all(AssertSqlSafe(statement)).await.map_err(|error| failed(&error))?;
    match rows.first().map(|row| row.try_get(0)) {
        Some(Ok(version)) => Ok(Some(version)),
        Some(Err(_)) | None => Err(StoreError::configuration(format!(
            "the table {} is not idem's: it names no version of its layout; choose another name with `table`",
            layout.meta
        ))),
    }
}

async fn migrate(connection: &mut PgConnection, layout: &Layout) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| failed(&error))?;
    // Others may take longer than a lock is waited for elsewhere.
    for statement in
        ["SET LOCAL lock_timeout = 0".to_owned(), format!("SELECT pg_advisory_xact_lock({LOCK})")]
    {
        transaction.execute(AssertSqlSafe(statement)).await.map_err(|error| failed(&error))?;
    }
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
        .fetch_all(&mut *connection)
        .await
        .map_err(|error| failed(&error))?;
    if !found.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        let create = format!("CREATE SCHEMA {}", schema.quoted());
        connection.execute(AssertSqlSafe(create)).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}
