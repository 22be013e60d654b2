//! PostgreSQL's poolers, its errors at a commit, and the transactions of SeaORM.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use idem::PostgresStore;
use idem::http::{IdempotencyLayer, Tx};
use idem_test_servers::web::{Request, Server};
use idem_test_servers::{PgBouncer, Postgres, PostgresEngine as Pg};
use sea_orm::{ConnectionTrait as _, DatabaseTransaction};

use crate::bank::{Bank, request};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn through_a_pooler_in_transaction_mode_twenty_duplicates_have_one_effect() {
    let database = Postgres::shared();
    let pooler = PgBouncer::start(&database, "transaction", "default_pool_size=3");
    let bank = Bank::<Pg>::on(database, &pooler.url(), 4, |builder| builder).await;
    let answers = join_all((0..20).map(|_| bank.server.ask(request("k")))).await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    assert_eq!(answers.iter().filter(|answer| !answer.is_replay()).count(), 1);
    assert_eq!(bank.committed(), (1, 1));
    // Of this database: other tests use the server too.
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
