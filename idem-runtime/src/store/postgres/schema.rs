//! The layout in the database, and how an older one becomes ours.
//!
//! Safe when many processes start at once: one migrates under a lock, and the others find it done.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::failure;
use super::names::{Identifier, Names};
use crate::error::StoreError;

/// The version of the layout this code reads and writes.
const VERSION: i64 = 2;

/// The lock that those hold who migrate, whatever their names: "idem" in ASCII, twice.
const LOCK: i64 = 0x6964_656d_6964_656d;

/// Finds the schema to use, makes the layout where it is absent or older, and refuses a newer one.
pub(super) async fn prepare(
    connection: &mut PgConnection,
    schema: Option<Identifier>,
    table: &Identifier,
) -> Result<Names, StoreError> {
    let schema = match schema {
        Some(schema) => schema,
        None => current_schema(connection).await?,
    };
    let names = Names::new(&schema, table);
    // Without a lock first: a user that may not make tables can use those that are there.
    match version(connection, &names).await? {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => return Err(too_new(&names, newer)),
        Some(_) | None => migrate(connection, &names).await?,
    }
    Ok(names)
}

fn failed(error: &sqlx::Error) -> StoreError {
    failure::of_statement(error).error()
}

fn too_new(names: &Names, version: i64) -> StoreError {
    StoreError::configuration(format!(
        "the table {} has layout {version}, and this version of idem knows up to {VERSION}; use a newer idem",
        names.records
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
async fn version(connection: &mut PgConnection, names: &Names) -> Result<Option<i64>, StoreError> {
    // By reading the catalogue: `to_regclass` may still answer what it said before another migrated.
    let found = sqlx::query(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = $1 AND c.relname = $2)",
    )
    .bind(names.schema.as_str())
    .bind(names.meta_name.as_str());
    let rows = found.fetch_all(&mut *connection).await.map_err(|error| failed(&error))?;
    if !rows.first().and_then(|row| row.try_get(0).ok()).unwrap_or(false) {
        return Ok(None);
    }
    let statement = format!("SELECT value FROM {} WHERE name = 'schema_version'", names.meta);
    let rows = connection.fetch_all(AssertSqlSafe(statement)).await.map_err(|error| failed(&error))?;
    match rows.first().map(|row| row.try_get(0)) {
        Some(Ok(version)) => Ok(Some(version)),
        Some(Err(_)) | None => Err(StoreError::configuration(format!(
            "the table {} is not idem's: it names no version of its layout; choose another name with `table`",
            names.meta
        ))),
    }
}

async fn migrate(connection: &mut PgConnection, names: &Names) -> Result<(), StoreError> {
    let mut transaction = connection.begin().await.map_err(|error| failed(&error))?;
    // Others may take longer than a lock is waited for elsewhere.
    for statement in
        ["SET LOCAL lock_timeout = 0".to_owned(), format!("SELECT pg_advisory_xact_lock({LOCK})")]
    {
        transaction.execute(AssertSqlSafe(statement)).await.map_err(|error| failed(&error))?;
    }
    match version(&mut transaction, names).await? {
        Some(VERSION) => {}
        Some(newer) if newer > VERSION => return Err(too_new(names, newer)),
        found => {
            if found.is_none() {
                create_schema(&mut transaction, &names.schema).await?;
                transaction.execute(AssertSqlSafe(layout(names))).await.map_err(|error| failed(&error))?;
            }
            transaction.execute(AssertSqlSafe(with_steps(names))).await.map_err(|error| failed(&error))?;
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

/// What leads from nothing to the first layout.
fn layout(names: &Names) -> String {
    let Names { records, meta, expiry_index, .. } = names;
    format!(
        "CREATE TABLE {records} (
            scope        bytea    NOT NULL, -- text in UTF-8, which may hold what the type text does not
            key          bytea    NOT NULL,
            state        smallint NOT NULL, -- 0 in_flight, 1 completed, 2 failed, 3 released, 4 in_doubt
            owner        bytea    NOT NULL,
            fence        bigint   NOT NULL,
            attempt      bigint   NOT NULL,
            recovered    boolean  NOT NULL,
            on_crash     smallint NOT NULL, -- 0 rerun, 1 in_doubt
            lease_until  bigint   NOT NULL, -- instants: microseconds since 1970-01-01 UTC
            retry_at     bigint   NOT NULL,
            ttl          bigint   NOT NULL, -- microseconds
            fingerprint  bytea,
            tombstone    smallint,          -- why there is no result: 0 too_large, 1 not_encodable, 2 exhausted
            created_at   bigint   NOT NULL,
            completed_at bigint,
            expires_at   bigint,
            result       bytea,
            PRIMARY KEY (scope, key)
        );
        CREATE INDEX {expiry_index} ON {records} (expires_at) WHERE expires_at IS NOT NULL;
        CREATE TABLE {meta} (name text PRIMARY KEY, value bigint NOT NULL);
        INSERT INTO {meta} (name, value) VALUES ('schema_version', 1), ('fence_floor', 0);"
    )
}

/// What leads from the first layout to the second: steps, and the view for people anew. That a generation
/// has a name, its beginning, keeps what another of the first layout leaves of one from the next.
fn with_steps(names: &Names) -> String {
    let Names { records, meta, readable, .. } = names;
    let text = |column: &str| {
        format!(
            "CASE WHEN position('\\x00'::bytea IN {column}) = 0 AND \
             current_setting('server_encoding') = 'UTF8' \
             THEN convert_from({column}, 'UTF8') ELSE encode({column}, 'escape') END"
        )
    };
    let date = |column: &str| format!("to_timestamp({column} / 1000000.0) AS {column}");
    let (scope, key) = (text("scope"), text("key"));
    let (lease_until, retry_at) = (date("lease_until"), date("retry_at"));
    let (created_at, completed_at, expires_at) =
        (date("created_at"), date("completed_at"), date("expires_at"));
    format!(
        "ALTER TABLE {records} ADD COLUMN steps bytea[], -- what the body recorded, in its order
            ADD COLUMN steps_of bigint; -- created_at of the record they are of
        UPDATE {meta} SET value = 2 WHERE name = 'schema_version';
        CREATE OR REPLACE VIEW {readable} AS SELECT
            {scope} AS scope, {key} AS key,
            (ARRAY['in_flight', 'completed', 'failed', 'released', 'in_doubt'])[state + 1] AS state,
            encode(owner, 'hex') AS owner, fence, attempt, recovered,
            (ARRAY['rerun', 'in_doubt'])[on_crash + 1] AS on_crash,
            {lease_until}, {retry_at}, ttl * interval '1 microsecond' AS ttl,
            encode(fingerprint, 'hex') AS fingerprint,
            (ARRAY['too_large', 'not_encodable', 'exhausted'])[tombstone + 1] AS tombstone,
            {created_at}, {completed_at}, {expires_at}, octet_length(result) AS result_bytes,
            CASE WHEN steps_of = created_at AND completed_at IS NULL THEN cardinality(steps) ELSE 0 END AS steps
        FROM {records};"
    )
}
