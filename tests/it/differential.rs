//! Tests with long random histories that every store answers as the pure protocol does.
//!
//! The seed is printed; `IDEM_SEED=.. cargo test` repeats the same histories.

use crate::dynamodb_support;

use std::collections::BTreeMap;

use idem::MemoryStore;
use idem::testing::conformance::{Profile, Subject, Violation};
use idem::testing::differential::{self, Answers};
use idem::testing::seed;

/// The number of kinds of answers, including lost ones but without a purge that found something: a store may have
/// deleted that before.
const KINDS: usize = 28;

/// How long an operation may take. A disk may stand still for some seconds, and the store then waits for it.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// Panics if the histories did not produce every kind of answer.
fn complete(answers: &Answers) {
    assert!(is_complete(answers), "{answers:#?}");
}

fn is_complete(answers: &Answers) -> bool {
    answers.keys().filter(|answer| **answer != "purge: some").count() == KINDS
}

#[test]
fn memory_store_answers_as_the_protocol_does() -> Result<(), Violation> {
    let seed = seed();
    let mut met = BTreeMap::new();
    for history in 0..12 {
        let answers = differential::run(seed.wrapping_add(history), 8_000, || async {
            Subject::new(MemoryStore::new(), Profile::tokio_clock())
        })?;
        for (answer, count) in answers {
            *met.entry(answer).or_default() += count;
        }
    }
    complete(&met);
    Ok(())
}

#[test]
fn memory_store_answers_as_the_protocol_does_on_a_running_clock() -> Result<(), Violation> {
    let subject = || async { Subject::new(MemoryStore::new(), Profile::real_clock()) };
    complete(&differential::run(seed(), 20_000, subject)?);
    Ok(())
}

#[test]
fn two_sqlite_stores_on_one_file_answer_as_the_protocol_does() -> Result<(), Violation> {
    let subject = || async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("idem.db");
        let open = || idem::SqliteStore::open(&path).unwrap();
        Subject::new(open(), Profile::real_clock()).handle(open()).keep(folder)
    };
    complete(&differential::run(seed(), 8_000, subject)?);
    Ok(())
}

#[test]
fn two_dynamodb_stores_on_one_table_answer_as_the_protocol_does() -> Result<(), Violation> {
    let aws = idem_test_servers::Aws::start();
    let client = || dynamodb_support::client(&aws);
    let open = |client, table: &str| {
        idem::DynamoDbStore::builder(client, table).clock_skew(std::time::Duration::ZERO).build()
    };
    // A short history may miss rare answers.
    let (seed, mut met) = (seed(), BTreeMap::new());
    for history in 0..4 {
        let table = format!("records-{history}");
        let (one, another) = (open(client(), &table), open(client(), &table));
        let subject = || async move {
            one.create_table().await.unwrap();
            let profile = Profile::real_clock().short(std::time::Duration::from_millis(200));
            Subject::new(one, profile).handle(another)
        };
        for (answer, count) in differential::run(seed.wrapping_add(history), 3_000, subject)? {
            *met.entry(answer).or_default() += count;
        }
        if is_complete(&met) {
            break;
        }
    }
    complete(&met);
    Ok(())
}

#[test]
fn two_nats_kv_stores_on_one_bucket_answer_as_the_protocol_does() -> Result<(), Violation> {
    let subject = || async {
        let nats = idem_test_servers::Nats::start();
        let open = async || {
            let builder = idem::NatsKvStore::builder(&nats.url(), "records");
            let builder = builder.clock_skew(std::time::Duration::ZERO).operation_timeout(PATIENCE);
            builder.connect().await.unwrap()
        };
        let (one, another) = (open().await, open().await);
        Subject::new(one, Profile::real_clock()).handle(another).keep(nats)
    };
    complete(&differential::run(seed(), 8_000, subject)?);
    Ok(())
}

#[test]
fn two_stores_on_one_folder_answer_as_the_protocol_does() -> Result<(), Violation> {
    let subject = || async {
        let folder = tempfile::tempdir().unwrap();
        let open = || idem::FolderStore::open(folder.path()).unwrap();
        Subject::new(open(), Profile::real_clock()).handle(open()).keep(folder)
    };
    complete(&differential::run(seed(), 8_000, subject)?);
    Ok(())
}

#[test]
fn two_redis_stores_on_one_server_answer_as_the_protocol_does() -> Result<(), Violation> {
    let subject = || async {
        let redis = idem_test_servers::Redis::start();
        let (one, another) = (redis_store(&redis).await, redis_store(&redis).await);
        Subject::new(one, Profile::real_clock()).handle(another).keep(redis)
    };
    complete(&differential::run(seed(), 20_000, subject)?);
    Ok(())
}

#[test]
fn two_postgres_stores_on_one_table_answer_as_the_protocol_does() -> Result<(), Violation> {
    let server = idem_test_servers::Postgres::shared();
    let url = server.url();
    let subject = || async move {
        let open = || idem::PostgresStore::builder(&url).operation_timeout(PATIENCE).connect();
        Subject::new(open().await.unwrap(), Profile::real_clock()).handle(open().await.unwrap())
    };
    complete(&differential::run(seed(), 20_000, subject)?);
    Ok(())
}

#[test]
fn two_postgres_stores_through_a_pooler_answer_as_the_protocol_does() -> Result<(), Violation> {
    for mode in ["session", "transaction"] {
        let server = idem_test_servers::Postgres::shared();
        let pooler = idem_test_servers::PgBouncer::start(&server, mode, "");
        let url = pooler.url();
        let subject = || async move {
            let open = || idem::PostgresStore::builder(&url).operation_timeout(PATIENCE).connect();
            Subject::new(open().await.unwrap(), Profile::real_clock()).handle(open().await.unwrap())
        };
        complete(&differential::run(seed(), 8_000, subject)?);
    }
    Ok(())
}

#[test]
fn two_mysql_stores_on_one_table_answer_as_the_protocol_does() -> Result<(), Violation> {
    let server = idem_test_servers::MariaDb::start();
    // Sessions of the second user prepare nothing, as on MySQL.
    let _ = server.sql(
        "create user unprepared; grant all on idem.* to unprepared; \
         set global init_connect = 'SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED'",
    );
    let urls = [server.url(), server.url().replace("root@", "unprepared@")];
    let subject = || async move {
        let open = |url: &str| idem::MySqlStore::builder(url).operation_timeout(PATIENCE).connect();
        let profile = Profile::real_clock().short(std::time::Duration::from_millis(200));
        Subject::new(open(&urls[0]).await.unwrap(), profile).handle(open(&urls[1]).await.unwrap())
    };
    complete(&differential::run(seed(), 8_000, subject)?);
    Ok(())
}

async fn redis_store(redis: &idem_test_servers::Redis) -> idem::RedisStore {
    idem::RedisStore::builder(redis.url()).operation_timeout(PATIENCE).connect().await.unwrap()
}
