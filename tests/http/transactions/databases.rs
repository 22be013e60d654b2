//! The two databases, with the operations that the cases need.

use std::future::Future;
use std::time::Duration;

use idem::http::TransactionPool;
use idem::{MySqlStore, PostgresStore};
use idem_core::transaction::RecordsIn;
use idem_test_servers::{DatabaseServer, Engine, MariaDbEngine, PostgresEngine};
use sqlx::mysql::{MySqlPool, MySqlPoolOptions, MySqlTransaction};
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgTransaction};
use sqlx::{AssertSqlSafe, Executor as _};

/// The type of the transactions of a database's pool.
pub(crate) type TransactionOf<D> =
    <<D as Database>::Pool as TransactionPool<<D as Database>::Store>>::Transaction;

pub(crate) trait Database: Engine + Sized + Send + Sync {
    type Pool: TransactionPool<Self::Store>;
    type Store: RecordsIn<<Self::Pool as TransactionPool<Self::Store>>::Connection>;

    fn pool(url: &str, connections: u32) -> impl Future<Output = Self::Pool> + Send;
    /// How many connections of the pool are in use.
    fn in_use(pool: &Self::Pool) -> u32;
    fn store(pool: &Self::Pool, limit: usize) -> impl Future<Output = Self::Store> + Send;
    fn run(tx: &mut TransactionOf<Self>, statement: String) -> impl Future<Output = bool> + Send;
    /// Makes the commits on the server wait until the returned value is dropped.
    fn hold_commits(server: &DatabaseServer<Self>) -> impl Future<Output = Box<dyn Send>> + Send;
    /// A query for the number of commits that wait.
    const COMMITS_THAT_WAIT: &str;
}

/// How long a request waits for a connection of the pool.
const PATIENCE: Duration = Duration::from_secs(20);

impl Database for PostgresEngine {
    type Pool = PgPool;
    type Store = PostgresStore;

    async fn pool(url: &str, connections: u32) -> PgPool {
        // A pooler refuses this parameter, which the driver sends by default.
        let options = url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None);
        let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE);
        pool.connect_with(options).await.unwrap()
    }

    fn in_use(pool: &PgPool) -> u32 {
        pool.size() - u32::try_from(pool.num_idle()).unwrap()
    }

    async fn store(pool: &PgPool, limit: usize) -> PostgresStore {
        PostgresStore::builder_from_pool(pool).max_result_bytes(limit).connect().await.unwrap()
    }

    async fn run(tx: &mut PgTransaction<'static>, statement: String) -> bool {
        tx.execute(AssertSqlSafe(statement)).await.is_ok()
    }

    async fn hold_commits(server: &DatabaseServer<Self>) -> Box<dyn Send> {
        let holder = Self::pool(&server.url(), 1).await;
        let mut session = holder.acquire().await.unwrap().detach();
        session.execute("SELECT pg_advisory_lock(42)").await.unwrap();
        server.sql(
            "CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'; \
             CREATE CONSTRAINT TRIGGER hold AFTER INSERT ON payments DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION hold()",
        );
        Box::new(session)
    }

    const COMMITS_THAT_WAIT: &str = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COMMIT' AND wait_event_type = 'Lock' \
         AND datname = current_database()";
}

impl Database for MariaDbEngine {
    type Pool = MySqlPool;
    type Store = MySqlStore;

    async fn pool(url: &str, connections: u32) -> MySqlPool {
        let pool = MySqlPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE);
        pool.connect(url).await.unwrap()
    }

    fn in_use(pool: &MySqlPool) -> u32 {
        pool.size() - u32::try_from(pool.num_idle()).unwrap()
    }

    async fn store(pool: &MySqlPool, limit: usize) -> MySqlStore {
        MySqlStore::builder_from_pool(pool).max_result_bytes(limit).connect().await.unwrap()
    }

    async fn run(tx: &mut MySqlTransaction<'static>, statement: String) -> bool {
        tx.execute(AssertSqlSafe(statement)).await.is_ok()
    }

    async fn hold_commits(server: &DatabaseServer<Self>) -> Box<dyn Send> {
        let holder = Self::pool(&server.url(), 1).await;
        let mut session = holder.acquire().await.unwrap().detach();
        session.execute("BACKUP STAGE START").await.unwrap();
        session.execute("BACKUP STAGE BLOCK_COMMIT").await.unwrap();
        Box::new(session)
    }

    const COMMITS_THAT_WAIT: &str =
        "SELECT count(*) FROM information_schema.processlist WHERE info = 'COMMIT' AND state LIKE '%lock%'";
}
