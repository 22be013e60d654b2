//! The histories on each kind of store. For the object stores, a folder is enough.

use std::time::Duration;

use idem::{MemoryStore, SqliteStore, Store};

use super::violation;
use crate::dynamodb_support;

/// Runs this many histories, and fails at the first history that no order explains.
async fn all_are_linearizable<S: Store>(store: S, histories: u64) {
    if let Some((seed, history)) = violation(store, histories, rand::random()).await {
        panic!("with seed {seed}, this history is not linearizable: {:#?}", history.0.lock().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_memory_store_are_linearizable() {
    all_are_linearizable(MemoryStore::new(), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_sqlite_store_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    all_are_linearizable(store, 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_dynamodb_store_are_linearizable() {
    let aws = idem_test_servers::Aws::start();
    let client = dynamodb_support::client(&aws);
    let store = idem::DynamoDbStore::builder(client, "records").clock_skew(Duration::ZERO).build();
    store.create_table().await.unwrap();
    all_are_linearizable(store, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_nats_kv_store_are_linearizable() {
    let nats = idem_test_servers::Nats::start();
    let builder = idem::NatsKvStore::builder(&nats.url(), "records").clock_skew(Duration::ZERO);
    all_are_linearizable(builder.connect().await.unwrap(), 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_in_a_folder_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let store = idem::FolderStore::open(folder.path()).unwrap();
    all_are_linearizable(store, 60).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_redis_store_are_linearizable() {
    let redis = idem_test_servers::Redis::start();
    let store = idem::RedisStore::connect(redis.url()).await.unwrap();
    all_are_linearizable(store, 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_postgres_store_are_linearizable() {
    let server = idem_test_servers::Postgres::shared();
    let store = idem::PostgresStore::connect(&server.url()).await.unwrap();
    all_are_linearizable(store, 150).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_mysql_store_are_linearizable() {
    let server = idem_test_servers::MariaDb::shared();
    let store = idem::MySqlStore::connect(&server.url()).await.unwrap();
    all_are_linearizable(store, 150).await;
}
