//! Tests of `transaction = tx`: the caller's commit writes claim, effects and result together. Commits,
//! rollbacks and bodies that fail are among the cases of each driver, in `stores/postgres/tests/it/drivers`.
//! Here are the bank whose calls are tested, and other options beside this one.

mod carriers;
mod not_recorded;
mod of_operation;
mod races;

use std::sync::Arc;

use idem::{Operation, PostgresStore, idempotent};
use idem_test_servers::Postgres as Server;
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Executor as _, PgPool, Postgres, Transaction};
use tokio::sync::Notify;

/// The error of a user's function.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error("try again")]
    Transient,
    #[error("{0}")]
    Sql(String),
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error.to_string())
    }
}

impl Failure {
    fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            Self::Transient => "body",
            Self::Sql(_) => "sql",
        }
    }
}

/// What a body does after its effect.
#[derive(Clone, Default)]
enum Then {
    #[default]
    Return,
    /// Reports that it has begun, and waits.
    Wait(Arc<Notify>, Arc<Notify>),
}

struct Bank {
    server: Server,
    pool: PgPool,
    store: PostgresStore,
}

impl Bank {
    async fn open() -> Arc<Self> {
        let server = Server::start();
        let pool = PgPoolOptions::new().max_connections(20).connect(&server.url()).await.unwrap();
        let store = PostgresStore::from_pool(&pool).await.unwrap();
        pool.execute("CREATE TABLE effects (id text NOT NULL)").await.unwrap();
        Arc::new(Self { server, pool, store })
    }

    async fn begin(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }

    fn effects(&self) -> usize {
        self.server.sql("select count(*) from effects").parse().unwrap()
    }

    /// A call in a transaction that is committed.
    async fn pay(&self, order: &str) -> Result<u32, Failure> {
        let mut tx = self.begin().await;
        let paid = pay(&self.store, &mut tx, order, Then::Return).await?;
        tx.commit().await?;
        Ok(paid)
    }
}

async fn effect(connection: &mut PgConnection, order: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects VALUES ($1)").bind(order).execute(connection).await?;
    Ok(())
}

#[idempotent(key = "order/{order}", scope = "bank.pay", store = store, transaction = tx)]
async fn pay(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &str,
    then: Then,
) -> Result<u32, Failure> {
    effect(tx, order).await?;
    if let Then::Wait(begun, go_on) = then {
        begun.notify_one();
        go_on.notified().await;
    }
    Ok(7)
}

#[tokio::test]
async fn a_result_that_is_too_large_is_a_tombstone_in_the_same_commit() {
    #[idempotent(key = "{order}", store = store, transaction = tx)]
    async fn long(
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        order: &str,
    ) -> Result<String, Failure> {
        effect(tx, order).await?;
        Ok("long".repeat(10))
    }
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let store = PostgresStore::builder_from_pool(&bank.pool).max_result_bytes(10).connect().await.unwrap();
    assert_eq!(long(&store, &mut tx, "1").await.unwrap().len(), 40);
    tx.commit().await.unwrap();
    let mut tx = bank.begin().await;
    assert_eq!(long(&store, &mut tx, "1").await.unwrap_err().kind(), "result_not_stored");
    assert_eq!(bank.effects(), 1);
}

#[tokio::test]
async fn other_arguments_under_one_key_and_a_released_record_are_judged_as_without_a_transaction() {
    #[idempotent(key = "{order}", scope = "judged", store = store, transaction = tx, fingerprint = amount)]
    async fn pay(
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        order: &str,
        amount: u32,
    ) -> Result<u32, Failure> {
        effect(tx, order).await?;
        Ok(idem::context().unwrap().attempt())
    }
    let bank = Bank::open().await;
    // An attempt without a transaction failed and was released.
    let failed = Operation::new("judged").fingerprint(&5_u32);
    let failed = failed.run(&bank.store, "1", || async { Err::<u32, _>(Failure::Transient) }).await;
    assert!(matches!(failed, Err(Failure::Transient)));
    let mut tx = bank.begin().await;
    assert_eq!(pay(&bank.store, &mut tx, "1", 6).await.unwrap_err().kind(), "mismatch");
    assert_eq!(pay(&bank.store, &mut tx, "1", 5).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), 1);
    let replayed = Operation::new("judged").run(&bank.store, "1", || async { Ok::<u32, Failure>(9) }).await;
    assert_eq!(replayed.unwrap(), 2);
}
