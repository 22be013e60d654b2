//! The histories of each store.

use std::sync::Arc;
use std::time::Duration;

use idem::{MemoryStore, SqliteStore};

use super::{History, violation};
use crate::dynamodb_support;

fn seed() -> u64 {
    let given = std::env::var("IDEM_SEED").ok().map(|seed| seed.parse().expect("IDEM_SEED is a number"));
    let seed = given.unwrap_or_else(rand::random);
    println!("IDEM_SEED={seed}");
    seed
}

/// The number of histories; `IDEM_HISTORIES` sets another.
fn histories(usual: u64) -> u64 {
    let given = std::env::var("IDEM_HISTORIES").ok();
    given.map_or(usual, |histories| histories.parse().expect("IDEM_HISTORIES is a number"))
}

fn assert_none(broken: Option<(u64, Arc<History>)>) {
    if let Some((seed, history)) = broken {
        panic!("with seed {seed}, this history is not linearizable: {:#?}", history.0.lock().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_memory_store_are_linearizable() {
    assert_none(violation(MemoryStore::new(), histories(300), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_sqlite_store_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    assert_none(violation(store, histories(150), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_dynamodb_store_are_linearizable() {
    let aws = idem_test_servers::Aws::start();
    let client = dynamodb_support::client(&aws);
    let store = idem::DynamoDbStore::builder(client, "records").clock_skew(Duration::ZERO).build();
    store.create_table().await.unwrap();
    assert_none(violation(store, histories(60), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_nats_kv_store_are_linearizable() {
    let nats = idem_test_servers::Nats::start();
    let builder = idem::NatsKvStore::builder(&nats.url(), "records").clock_skew(Duration::ZERO);
    assert_none(violation(builder.connect().await.unwrap(), histories(150), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_in_a_folder_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let store = idem::FolderStore::open(folder.path()).unwrap();
    assert_none(violation(store, histories(60), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_redis_store_are_linearizable() {
    let redis = idem_test_servers::Redis::start();
    let store = idem::RedisStore::connect(redis.url()).await.unwrap();
    assert_none(violation(store, histories(300), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_postgres_store_are_linearizable() {
    let server = idem_test_servers::Postgres::shared();
    let store = idem::PostgresStore::connect(&server.url()).await.unwrap();
    assert_none(violation(store, histories(150), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_mysql_store_are_linearizable() {
    let server = idem_test_servers::MariaDb::shared();
    let store = idem::MySqlStore::connect(&server.url()).await.unwrap();
    assert_none(violation(store, histories(150), seed()).await);
}
