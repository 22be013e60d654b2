//! Cases for PostgreSQL only: poolers, errors at a commit, the transactions of SeaORM, and a pool type of the
//! user.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode};
use axum::routing::post;
use idem::http::{IdempotencyLayer, TransactionPool, Tx};
use idem::{PostgresStore, StoreError};
use idem_test_servers::web::{Request, Server};
use idem_test_servers::{PgBouncer, Postgres, PostgresEngine as Pg};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction};
use sqlx::PgConnection;
use sqlx::postgres::{PgPool, PgTransaction};
use tokio::sync::Notify;
use tower::ServiceExt as _;

use crate::bank::{Bank, request};
use crate::cases::have_one_effect;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_in_transaction_mode_twenty_duplicates_have_one_effect() {
    let database = Postgres::shared();
    let pooler = PgBouncer::start(&database, "default_pool_size=3");
    let bank = Bank::<Pg>::on(database, &pooler.url(), 4, |builder| builder).await;
    have_one_effect(&bank).await;
    // Counts only the locks of this database, because other tests use the same server.
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' \
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    assert_eq!(tokio::task::block_in_place(|| bank.database.sql(locks)), "0");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_server_refuses_is_no_response() {
    let bank = Bank::<Pg>::with(2, |builder| builder.wait(Duration::ZERO)).await;
    bank.database.sql(
        "ALTER TABLE payments ADD CONSTRAINT once UNIQUE (cents) DEFERRABLE INITIALLY DEFERRED; \
         INSERT INTO payments VALUES (5)",
    );
    assert_eq!(bank.server.ask(request("k")).await.problem(), "store-unavailable");
    assert_eq!(bank.committed(), (1, 0));
    bank.database.sql("ALTER TABLE payments DROP CONSTRAINT once");
    assert_eq!(bank.server.ask(request("k")).await.status, 201);
    assert_eq!(bank.committed(), (2, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_writes_in_a_transaction_of_sea_orm() {
    let database = Postgres::shared();
    database.sql("CREATE TABLE payments (cents BIGINT NOT NULL)");
    let pool = sea_orm::Database::connect(database.url()).await.unwrap();
    let store = PostgresStore::connect(&database.url()).await.unwrap();
    let layer = IdempotencyLayer::in_transaction(store, pool).shared_by_all_clients().build().unwrap();
    let pay = |tx: Tx<DatabaseTransaction>| async move {
        tx.execute_unprepared("INSERT INTO payments VALUES (5)").await.unwrap();
        "paid"
    };
    let server = Server::start(Router::new().route("/pay", post(pay)).layer(layer)).await;
    assert!(!server.ask(Request::post("/pay", "k")).await.is_replay());
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
    let counts = "SELECT (SELECT count(*) FROM payments) + (SELECT count(*) FROM idem_records)";
    assert_eq!(tokio::task::block_in_place(|| database.sql(counts)), "2");
}

/// A pool whose second `begin` returns only when the test says so.
#[derive(Clone)]
struct LatePool(PgPool, Arc<Late>);

#[derive(Default)]
struct Late {
    begins: AtomicU32,
    waits: Notify,
    goes_on: Notify,
    has_begun: Notify,
}

impl TransactionPool<PostgresStore> for LatePool {
    type Connection = PgConnection;
    type Transaction = PgTransaction<'static>;

    async fn begin(&self) -> Result<Self::Transaction, StoreError> {
        let Self(pool, late) = self;
        let transaction = TransactionPool::<PostgresStore>::begin(pool).await?;
        if late.begins.fetch_add(1, Ordering::SeqCst) == 1 {
            late.waits.notify_one();
            late.goes_on.notified().await;
            late.has_begun.notify_one();
        }
        Ok(transaction)
    }

    fn connection(transaction: &mut Self::Transaction) -> &mut PgConnection {
        transaction
    }

    async fn commit(transaction: Self::Transaction) -> Result<(), StoreError> {
        <PgPool as TransactionPool<PostgresStore>>::commit(transaction).await
    }

    async fn roll_back(transaction: Self::Transaction) {
        <PgPool as TransactionPool<PostgresStore>>::roll_back(transaction).await;
    }
}

/// If sqlx's `begin` were dropped, sqlx would return the connection to its pool with the transaction open.
#[tokio::test]
async fn a_begin_goes_on_when_its_client_goes_away() {
    let database = Postgres::shared();
    let pool = PgPool::connect(&database.url()).await.unwrap();
    let (store, late) = (PostgresStore::from_pool(&pool).await.unwrap(), Arc::<Late>::default());
    let layer = IdempotencyLayer::in_transaction(store, LatePool(pool, late.clone())).shared_by_all_clients();
    let refuse = || async { StatusCode::PAYMENT_REQUIRED };
    let app = Router::new().route("/pay", post(refuse)).layer(layer.build().unwrap());
    let request = HttpRequest::post("/pay").header("idempotency-key", "k").body(Body::empty()).unwrap();
    let call = tokio::spawn(app.oneshot(request));
    // The handler refuses, so its transaction is rolled back, and a second transaction records the response.
    late.waits.notified().await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    // The abort of the call also aborts the handler's task. This loop lets that task end.
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    late.goes_on.notify_one();
    let has_begun = tokio::time::timeout(Duration::from_secs(30), late.has_begun.notified()).await;
    assert!(has_begun.is_ok(), "it was dropped");
}
