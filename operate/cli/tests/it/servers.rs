//! The whole sequence on a file and on real servers: a key in doubt is found, shown, resolved and replayed.

use std::time::Duration;

use idem::protocol::State;
use idem::{DynStore, MySqlStore, OnCrash, Operation, PostgresStore, RedisStore};
use idem_test_servers::{Aws, MariaDb, Postgres, Redis, bucket};

use crate::dynamodb_support;
use crate::idem_command::*;

/// The checks that every store shares. `doctor` is the exit code that `idem doctor` should have, and a text
/// that it should print.
async fn story(idem: &Idem, store: &DynStore, doctor: (i32, &str)) {
    let [doubtful, done] = ["order-1", "order-2"].map(key);
    bring(store, &doubtful, State::InDoubt).await;
    bring(store, &done, State::Completed).await;
    lapse(store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;
    assert_eq!(idem.digests(&[]), digests(&[&doubtful, &done]));
    assert_eq!(idem.digests(&["--state", "in-doubt", "--scope", SCOPE]), digests(&[&doubtful]));
    let shown = idem.run(&["--json", "show", "order-2", "--scope", SCOPE, "--result"]).ended(0).one();
    assert_eq!(shown["result"]["value"]["receipt"], SECRET);
    let digest = doubtful.digest().to_string();
    idem.run(&["resolve", "--digest", &digest, "--completed", "\"by hand\"", "--yes"]).ended(0);
    let charge = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    let body = || async { Ok::<_, idem::Error>("the body ran".to_owned()) };
    assert_eq!(charge.run(store, "order-1", body).await.unwrap(), "by hand");
    idem.run(&["forget", "order-2", "--yes"]).ended(0);
    idem.run(&["forget", "order-2", "--scope", SCOPE, "--yes"]).ended(1);
    idem.run(&["purge"]).ended(0);
    let counted = idem.run(&["--json", "stats"]).ended(0).one();
    assert_eq!(counted["scopes"][SCOPE]["live"], 1);
    let (code, says) = doctor;
    let seen = idem.run(&["--json", "doctor"]).ended(code);
    assert!(seen.out.contains(says), "{says} is not in {seen:?}");
    for operation in ["claim", "renew", "get", "release", "resolve", "complete", "replay", "forget"] {
        assert!(seen.one()["seconds"][operation].as_f64().unwrap() > 0.0, "{operation} of {seen:?}");
    }
    idem.run(&["list", "--scope", "idem.doctor", "--expired"]).ended(1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_in_a_file() {
    let shop = Shop::new();
    story(&shop.idem, &DynStore::new(shop.store.clone()), (0, "SQLite 3.")).await;
    assert!(shop.idem.run(&["doctor"]).ended(0).out.contains("MEDIAN"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_on_redis() {
    let mut redis = Redis::start();
    let store = DynStore::new(RedisStore::connect(redis.url()).await.unwrap());
    let idem = Idem::new(redis.url());
    story(&idem, &store, (7, "set `appendonly yes`")).await;
    let other = Idem::new(redis.url());
    other.run(&["list", "--prefix", "other:"]).ended(1);
    let wrong = Idem::new(redis.url().replace("//", &format!("//user:{SECRET}@"))).run(&["list"]).ended(5);
    assert!(!wrong.err.contains(SECRET), "{wrong:?}");
    redis.server().kill();
    idem.run(&["list"]).ended(4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_on_postgres() {
    let mut postgres = Postgres::start();
    let idem = Idem::new(postgres.url());
    let absent = idem.run(&["list"]).ended(5);
    assert!(absent.err.contains("there is no table"), "{absent:?}");
    assert_eq!(postgres.sql("select count(*) from pg_tables where tablename like 'idem%'"), "0");
    let store = DynStore::new(PostgresStore::connect(&postgres.url()).await.unwrap());
    story(&idem, &store, (7, "fsync")).await;
    idem.run(&["list", "--table", "other"]).ended(5);
    drop(store);
    postgres.server().kill();
    idem.run(&["list"]).ended(4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_on_mariadb() {
    let mut mariadb = MariaDb::start();
    let idem = Idem::new(mariadb.url());
    let absent = idem.run(&["list"]).ended(5);
    assert!(absent.err.contains("there is no table"), "{absent:?}");
    assert_eq!(mariadb.sql("show tables"), "");
    let store = DynStore::new(MySqlStore::connect(&mariadb.url()).await.unwrap());
    story(&idem, &store, (7, "innodb_flush_log_at_trx_commit")).await;
    idem.run(&["list", "--table", "other"]).ended(5);
    drop(store);
    mariadb.server().kill();
    idem.run(&["list"]).ended(4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_on_dynamodb() {
    let mut aws = Aws::start();
    let client = dynamodb_support::client(&aws);
    let store = idem::DynamoDbStore::builder(client, "orders").clock_skew(Duration::ZERO).build();
    store.create_table().await.unwrap();
    let idem = Idem::new(format!("dynamodb://orders?endpoint={}&skew_ms=0", aws.url()))
        .with_environment("AWS_ACCESS_KEY_ID", "test")
        .with_environment("AWS_SECRET_ACCESS_KEY", SECRET);
    story(&idem, &DynStore::new(store), (0, "time to live")).await;
    // On DynamoDB each round costs money, so the default interval is long.
    let watched = idem.run(&["stats", "--watch", "--times", "1"]).ended(0);
    assert!(watched.out.contains("every 60s"), "{watched:?}");
    let other = Idem::new(format!("dynamodb://others?endpoint={}", aws.url()))
        .with_environment("AWS_ACCESS_KEY_ID", "test")
        .with_environment("AWS_SECRET_ACCESS_KEY", SECRET);
    let absent = other.run(&["list"]).ended(5);
    assert!(absent.err.contains("the table is not there"), "{absent:?}");
    aws.server().kill();
    let down = idem.run(&["list"]).ended(4);
    assert!(!down.err.contains(SECRET), "{down:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_in_a_bucket() {
    let mut aws = Aws::start();
    let objects = bucket(&aws, "orders");
    let idem = Idem::new("object:s3://orders/idem?skew_ms=0".to_owned())
        .with_environment("AWS_ENDPOINT", &aws.url())
        .with_environment("AWS_ALLOW_HTTP", "true")
        .with_environment("AWS_REGION", "us-east-1")
        .with_environment("AWS_ACCESS_KEY_ID", "test")
        .with_environment("AWS_SECRET_ACCESS_KEY", SECRET);
    let builder = idem::BucketStore::builder(objects, "idem").clock_skew(Duration::ZERO);
    let store = builder.connect().await.unwrap();
    story(&idem, &DynStore::new(store), (0, "idem=expired")).await;
    aws.server().kill();
    let down = idem.run(&["list"]).ended(4);
    assert!(!down.err.contains(SECRET), "{down:?}");
}
