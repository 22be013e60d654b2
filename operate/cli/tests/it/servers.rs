//! The whole sequence on each real server: a key in doubt is found, shown, resolved and replayed.

use std::time::Duration;

use idem::protocol::State;
use idem::{DynStore, MySqlStore, OnCrash, Operation, PostgresStore, RedisStore};
use idem_test_servers::{Aws, MariaDb, Postgres, Redis, RedisCluster, bucket};
use serde_json::json;

use crate::idem_command::*;

/// The checks that every store shares. `doctor` is the exit code that `idem doctor` should have there, and a text that it should print.
async fn story(idem: &Idem, store: &DynStore, doctor: (i32, &str)) {
    let [doubtful, running, done] = ["order-1", "order-2", "order-3"].map(key);
    bring(store, &doubtful, State::InDoubt).await;
    bring(store, &running, State::InFlight).await;
    bring(store, &done, State::Completed).await;
    lapse(store, &key("over"), OnCrash::Rerun, Duration::from_millis(1)).await;

    assert_eq!(idem.digests(&[]), digests(&[&doubtful, &running, &done]));
    let listed = idem.run(&["--json", "list", "--state", "in-doubt", "--scope", SCOPE]).ended(0).one();
    let digest = doubtful.digest().to_string();
    assert_eq!((&listed["digest"], &listed["scope"]), (&json!(digest), &json!(SCOPE)));
    assert!(idem.run(&["list", "--keys"]).ended(0).out.contains("order-2"));
    println!("== {}", idem.run(&["--json", "doctor", "--read-only"]).one()["server"]);
    assert!(idem.show(&["list"]).ended(0).out.contains("must be resolved by a person"));
    assert!(idem.show(&["show", "--digest", &digest]).ended(0).out.contains("in doubt: ask a person"));
    let shown = idem.run(&["--json", "show", "--digest", &digest]).ended(0).one();
    assert_eq!((&shown["state"], &shown["expires_at"]), (&json!("in_doubt"), &json!(null)));
    let shown = idem.run(&["--json", "show", "order-3", "--scope", SCOPE, "--result"]).ended(0).one();
    assert_eq!(shown["result"]["value"]["receipt"], SECRET);

    idem.run(&["resolve", "--digest", &digest, "--completed", "\"by hand\""]).ended(6);
    idem.show(&["resolve", "--digest", &digest, "--completed", "\"by hand\"", "--yes"]).ended(0);
    idem.run(&["resolve", "order-2", "--scope", SCOPE, "--release", "--yes"]).ended(3);
    let charge = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    let body = || async { Ok::<_, idem::Error>("the body ran".to_owned()) };
    assert_eq!(charge.run(store, "order-1", body).await.unwrap(), "by hand");

    idem.run(&["forget", "order-3", "--yes"]).ended(0);
    idem.run(&["forget", "order-3", "--scope", SCOPE, "--yes"]).ended(1);
    idem.run(&["--json", "purge"]).ended(0).one();
    idem.run(&["purge"]).ended(0);
    idem.show(&["stats"]).ended(0);
    let counted = idem.run(&["--json", "stats"]).ended(0).one();
    assert_eq!((&counted["all"]["in_flight"], &counted["all"]["completed"]), (&json!(1), &json!(1)));
    assert_eq!(counted["scopes"][SCOPE]["live"], 2);

    let (code, says) = doctor;
    idem.show(&["doctor"]).ended(code);
    let seen = idem.run(&["--json", "doctor"]).ended(code);
    assert!(seen.out.contains(says), "{says} is not in {seen:?}");
    assert!(seen.one()["seconds"]["claim"].as_f64().unwrap() > 0.0, "{seen:?}");
    idem.run(&["list", "--scope", "idem.doctor", "--expired"]).ended(1);
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
async fn a_server_that_may_evict_is_found_weak() {
    let redis = Redis::with(&["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"]);
    let seen = Idem::new(redis.url()).run(&["--json", "doctor", "--read-only"]).ended(7).one();
    let weak: Vec<_> =
        seen["findings"].as_array().unwrap().iter().filter(|one| one["standing"] == "weak").collect();
    assert_eq!(weak.len(), 1, "{seen}");
    assert_eq!(weak[0]["subject"], "maxmemory-policy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_settles_what_is_on_a_cluster() {
    let cluster = RedisCluster::start();
    let store = DynStore::new(RedisStore::cluster(cluster.urls()).connect().await.unwrap());
    let nodes: Vec<String> = cluster
        .urls()
        .iter()
        .map(|url| url.trim_start_matches("redis://").trim_end_matches('/').to_owned())
        .collect();
    let idem = Idem::new(format!("redis-cluster://{}", nodes.join(",")));
    story(&idem, &store, (7, "set `appendonly yes`")).await;
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

/// Makes a server accept connections over TLS only.
fn with_tls(server: &mut Postgres) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let data = server.server().folder().join("data");
    let (key, certificate) = (data.join("server.key"), data.join("server.crt"));
    let mut make = std::process::Command::new("openssl");
    make.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]);
    let made = make.arg("-keyout").arg(&key).arg("-out").arg(&certificate).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let owner = std::fs::metadata(&data).unwrap();
    for file in [&key, &certificate] {
        chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let hba = data.join("pg_hba.conf");
    let rest = std::fs::read_to_string(&hba).unwrap();
    std::fs::write(&hba, format!("hostnossl all all 127.0.0.1/32 reject\n{rest}")).unwrap();
    let _ = server.sql("alter system set ssl = on");
    let _ = server.sql("select pg_reload_conf()");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_server_that_takes_tls_only_is_reached() {
    let mut postgres = Postgres::start();
    drop(PostgresStore::connect(&postgres.url()).await.unwrap());
    with_tls(&mut postgres);
    // The server applies its new settings a moment later.
    let refused = || Idem::new(format!("{}?sslmode=disable", postgres.url())).run(&["list"]);
    idem_test_servers::until("it takes TLS only", || refused().code == 5);
    let idem = Idem::new(format!("{}?sslmode=require", postgres.url()));
    // Exit code 1: the command reaches the store, which is empty.
    idem.run(&["list"]).ended(1);
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
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};

    let mut aws = Aws::start();
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(aws.url())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = aws_sdk_dynamodb::Client::from_conf(config.build());
    let store = idem::DynamoDbStore::builder(client, "orders").clock_skew(Duration::ZERO).build();
    store.create_table().await.unwrap();
    let idem = Idem::new(format!("dynamodb://orders?endpoint={}&skew_ms=0", aws.url()))
        .with_environment("AWS_ACCESS_KEY_ID", "test")
        .with_environment("AWS_SECRET_ACCESS_KEY", SECRET);
    story(&idem, &DynStore::new(store), (0, "time to live")).await;
    // On DynamoDB each round costs money, so the interval is long.
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
