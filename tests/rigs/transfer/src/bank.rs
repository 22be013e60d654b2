//! The database with the accounts, the records and the messages.

use std::str::FromStr as _;

use idem::PostgresStore;
use idem::outbox::Outbox;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, PgConnection, PgPool, Row as _};

use crate::{ACCOUNTS, BALANCE, Failure};

/// A schema of PostgreSQL.
pub(crate) struct Bank {
    pub(crate) pool: PgPool,
    /// The schema of its tables. Statements name it, because clients behind a pooler share sessions, so a `search_path` would not do.
    schema: String,
    pub(crate) store: PostgresStore,
    pub(crate) outbox: Outbox,
}

/// A pool that also works through a transaction pooler: it sends no parameter that a pooler refuses. Its users run statements
/// without a name, or by `raw_sql`.
async fn pool(url: &str) -> Result<PgPool, Failure> {
    let options = PgConnectOptions::from_str(url)?.extra_float_digits(None);
    Ok(PgPoolOptions::new().max_connections(4).connect_with(options).await?)
}

impl Bank {
    /// Creates the schema, and the accounts in it.
    pub(crate) async fn found(url: &str, schema: &str) -> Result<Self, Failure> {
        pool(url).await?.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await?;
        let bank = Self::open(url, schema).await?;
        let accounts: Vec<_> = (0..ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
        for statement in [
            format!(
                "CREATE TABLE {schema}.accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, \
                 sent bigint NOT NULL DEFAULT 0)"
            ),
            format!("CREATE TABLE {schema}.effects (id bigint NOT NULL)"),
            format!("INSERT INTO {schema}.accounts (id, balance) VALUES {}", accounts.join(", ")),
        ] {
            bank.pool.execute(AssertSqlSafe(statement)).await?;
        }
        Ok(bank)
    }

    pub(crate) async fn open(url: &str, schema: &str) -> Result<Self, Failure> {
        let (pool, schema) = (pool(url).await?, schema.to_owned());
        let store = PostgresStore::builder(url).schema(schema.as_str()).connect().await?;
        let outbox = Outbox::builder(url).schema(schema.as_str()).connect().await?;
        Ok(Self { pool, schema, store, outbox })
    }

    /// Drops the schema with its content.
    pub(crate) async fn drop(&self) -> Result<(), Failure> {
        self.pool.execute(AssertSqlSafe(format!("DROP SCHEMA {} CASCADE", self.schema))).await?;
        Ok(())
    }

    /// An aggregate of a table. The number travels as text: that is the form of values in a statement by `raw_sql`.
    pub(crate) async fn count(&self, what: &str, table: &str) -> Result<i64, Failure> {
        let statement = format!("SELECT ({what})::text FROM {}.{table}", self.schema);
        let row = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(&self.pool).await?;
        Ok(row.try_get::<String, _>(0)?.parse()?)
    }

    /// Changes the balance of an account. Returns how many transfers it has sent.
    pub(crate) async fn change(
        &self,
        tx: &mut PgConnection,
        account: i64,
        by: i64,
        sends: i64,
    ) -> Result<i64, sqlx::Error> {
        let update = format!(
            "UPDATE {}.accounts SET balance = balance + $2, sent = sent + $3 WHERE id = $1 RETURNING sent",
            self.schema
        );
        let update = sqlx::query(AssertSqlSafe(update)).bind(account).bind(by).bind(sends);
        // The statement has no name, because a pooler shares the session between clients.
        update.persistent(false).fetch_one(tx).await?.try_get(0)
    }

    /// Inserts a row for the transfer. The table has no unique index, so that repeated transfers are counted.
    pub(crate) async fn note(&self, tx: &mut PgConnection, id: i64) -> Result<(), sqlx::Error> {
        let insert = format!("INSERT INTO {}.effects (id) VALUES ($1)", self.schema);
        sqlx::query(AssertSqlSafe(insert)).bind(id).persistent(false).execute(tx).await.map(drop)
    }
}
