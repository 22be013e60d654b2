//! The database with the accounts, the records and the messages.

use std::str::FromStr as _;

use idem::outbox::Outbox;
use idem::{MySqlStore, PostgresStore};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, MySqlPool, PgPool, Row as _};

use crate::{ACCOUNTS, BALANCE, Failure};

pub(crate) enum Bank {
    Postgres(OnPostgres),
    MySql(OnMySql),
}

/// A bank in a schema of PostgreSQL.
pub(crate) struct OnPostgres {
    pub(crate) pool: PgPool,
    /// The schema of the bank's tables. Statements name it, because clients behind a pooler share sessions,
    /// so a `search_path` would not work.
    pub(crate) schema: String,
    pub(crate) store: PostgresStore,
    pub(crate) outbox: Outbox,
}

/// A bank in a database of MySQL, which has no outbox.
pub(crate) struct OnMySql {
    pub(crate) pool: MySqlPool,
    pub(crate) schema: String,
    pub(crate) store: MySqlStore,
}

pub(crate) fn is_mysql(url: &str) -> bool {
    url.starts_with("mysql://")
}

/// A pool that also works through a transaction pooler, because it sends no parameter that a pooler refuses.
/// Users of this pool must run statements without a name, or by `raw_sql`.
pub(crate) async fn pool(url: &str) -> Result<PgPool, Failure> {
    let options = PgConnectOptions::from_str(url)?.extra_float_digits(None);
    Ok(PgPoolOptions::new().max_connections(4).connect_with(options).await?)
}

impl Bank {
    /// Creates the schema, and the accounts in it.
    pub(crate) async fn found(url: &str, schema: &str) -> Result<Self, Failure> {
        let create = AssertSqlSafe(format!("CREATE SCHEMA {schema}"));
        if is_mysql(url) {
            MySqlPool::connect(url).await?.execute(create).await?;
        } else {
            pool(url).await?.execute(create).await?;
        }
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
            bank.run(statement).await?;
        }
        Ok(bank)
    }

    pub(crate) async fn open(url: &str, schema: &str) -> Result<Self, Failure> {
        let schema = schema.to_owned();
        if is_mysql(url) {
            let options = MySqlConnectOptions::from_str(url)?.database(&schema);
            let pool = MySqlPoolOptions::new().max_connections(4).connect_with(options).await?;
            let store = MySqlStore::from_pool(&pool).await?;
            return Ok(Self::MySql(OnMySql { pool, schema, store }));
        }
        let pool = pool(url).await?;
        let store = PostgresStore::builder(url).schema(schema.as_str()).connect().await?;
        let outbox = Outbox::builder(url).schema(schema.as_str()).connect().await?;
        Ok(Self::Postgres(OnPostgres { pool, schema, store, outbox }))
    }

    /// Drops the schema with its content.
    pub(crate) async fn drop(&self) -> Result<(), Failure> {
        match self {
            Self::Postgres(bank) => self.run(format!("DROP SCHEMA {} CASCADE", bank.schema)).await,
            Self::MySql(bank) => self.run(format!("DROP SCHEMA {}", bank.schema)).await,
        }
    }

    async fn run(&self, statement: String) -> Result<(), Failure> {
        let statement = AssertSqlSafe(statement);
        match self {
            Self::Postgres(bank) => bank.pool.execute(statement).await.map(drop)?,
            Self::MySql(bank) => bank.pool.execute(statement).await.map(drop)?,
        }
        Ok(())
    }

    /// The value of an aggregate function over a table. It arrives as text, because `raw_sql` returns all
    /// values as text.
    pub(crate) async fn count(&self, what: &str, table: &str) -> Result<i64, Failure> {
        let text = match self {
            Self::Postgres(bank) => {
                let statement = format!("SELECT ({what})::text FROM {}.{table}", bank.schema);
                let row = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(&bank.pool).await?;
                row.try_get::<String, _>(0)?
            }
            Self::MySql(bank) => {
                let statement = format!("SELECT CAST({what} AS CHAR) FROM {}.{table}", bank.schema);
                let row = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_one(&bank.pool).await?;
                row.try_get::<String, _>(0)?
            }
        };
        Ok(text.parse()?)
    }

    /// How many messages are not published yet.
    pub(crate) async fn untold(&self) -> Result<i64, Failure> {
        match self {
            Self::Postgres(_) => self.count("count(*)", "idem_outbox").await,
            Self::MySql(_) => Ok(0),
        }
    }

    /// Whether transfers publish messages.
    pub(crate) const fn tells(&self) -> bool {
        matches!(self, Self::Postgres(_))
    }
}
