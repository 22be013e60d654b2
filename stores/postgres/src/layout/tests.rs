//! The migration to a next layout. The shipped layout is the first, so the tests define the next one.

use std::time::{Duration, Instant};

use idem_core::protocol::{Claim, ClaimAnswer, Owner};
use idem_core::{Key, RecordKey, Scope, Store, StoreError, StoreErrorKind};
use idem_test_servers::{Postgres, until};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinHandle;

use super::*;
use crate::PostgresStore;
use crate::db::settings::Settings;
use crate::db::source::Source;

/// A made-up next layout: a column, and an index on it.
struct Next(Names);

impl Named for Next {
    fn of(tables: &Tables) -> Self {
        Self(Names::of(tables))
    }

    fn versions(&self) -> Vec<Version> {
        let table = self.0.records.clone();
        let statements = format!("ALTER TABLE {table} ADD COLUMN tenant bytea");
        let name = Identifier::existing("fleet_tenant");
        let index = Index { name, table, columns: "tenant, created_at".into() };
        self.0.versions().into_iter().chain([Version { statements, indexes: vec![index] }]).collect()
    }
}

/// Migrates as a process of the next version does when it starts.
async fn migrate(url: &str) -> Result<(), StoreError> {
    let mut settings = Settings::new(Source::of_url(url), "fleet");
    // Shorter than the time for which an index is built in these tests.
    settings.common.operation_timeout = Duration::from_secs(4);
    settings.prepare::<Next>().await.map(drop)
}

fn migrating(server: &Postgres) -> JoinHandle<Result<(), StoreError>> {
    let url = server.url();
    tokio::spawn(async move { migrate(&url).await })
}

async fn connect(server: &Postgres) -> PostgresStore {
    PostgresStore::builder(&server.url()).table("fleet").connect().await.unwrap()
}

async fn claim(store: &PostgresStore, name: &str) -> ClaimAnswer {
    let key = RecordKey::new(Scope::new("layout").unwrap(), Key::new(name).unwrap());
    let hour = Duration::from_secs(3_600);
    store.claim(&key, &Claim::new(Owner::random(), hour, hour)).await.unwrap()
}

const BUILDS: &str =
    "select count(*) from pg_stat_activity where query like 'CREATE INDEX%' and state = 'active'";
const VERSION: &str = "select value from fleet_meta where name = 'schema_version'";
/// Whether the index is valid.
const INDEX: &str = "select coalesce((select indisvalid::text from pg_index where indexrelid = to_regclass('fleet_tenant')), 'none')";

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_migrate_at_once_build_one_index_and_keep_the_records() {
    let server = Postgres::start();
    // The ten stores connect at the same time, so they also create the table at the same time.
    let builder = PostgresStore::builder(&server.url()).table("fleet");
    let connecting = (0..10).map(|_| builder.clone().operation_timeout(Duration::from_secs(20)).connect());
    let stores = futures_util::future::try_join_all(connecting).await.unwrap();
    let store = &stores[0];
    assert!(matches!(claim(store, "before").await, ClaimAnswer::Granted(_)));
    let starting: Vec<_> = (0..10).map(|_| migrating(&server)).collect();
    for each in starting {
        each.await.unwrap().unwrap();
    }
    assert_eq!((server.sql(VERSION).as_str(), server.sql(INDEX).as_str()), ("2", "true"));
    assert!(matches!(claim(store, "before").await, ClaimAnswer::Busy { .. }));
    assert!(matches!(claim(store, "after").await, ClaimAnswer::Granted(_)), "the version before goes on");
    // A process of the earlier version no longer starts, because it does not know what the next version
    // needs.
    let error = PostgresStore::builder(&server.url()).table("fleet").connect().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(error.to_string().contains("newer idem"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_was_broken_off_is_built_by_the_next_process_and_claims_go_on_meanwhile() {
    let server = Postgres::start();
    let store = connect(&server).await;
    claim(&store, "before").await;
    // A transaction of another program, which does not use the table. Every new index waits for the end of
    // this transaction.
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let killed = migrating(&server);
    until("the index is built", || server.sql(BUILDS) == "1");
    let _ =
        server.sql("select pg_terminate_backend(pid) from pg_stat_activity where query like 'CREATE INDEX%'");
    assert!(killed.await.unwrap().unwrap_err().is_transient());
    assert_eq!((server.sql(VERSION).as_str(), server.sql(INDEX).as_str()), ("1", "false"));
    // The next process waits for longer than an operation may take.
    let next = migrating(&server);
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'";
    until("the next waits", || server.sql(waiting) == "1");
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed() < Duration::from_secs(5) {
        number += 1;
        assert!(matches!(claim(&store, &format!("order {number}")).await, ClaimAnswer::Granted(_)));
    }
    assert!(!next.is_finished());
    other.execute("COMMIT").await.unwrap();
    next.await.unwrap().unwrap();
    assert_eq!((server.sql(VERSION).as_str(), server.sql(INDEX).as_str()), ("2", "true"));
    assert!(matches!(claim(&store, "before").await, ClaimAnswer::Busy { .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_migration_that_waits_for_the_table_makes_nobody_wait() {
    let server = Postgres::start();
    let store = connect(&server).await;
    let mut report = PgConnection::connect(&server.url()).await.unwrap();
    let mut reading = report.begin().await.unwrap();
    reading.execute("LOCK TABLE fleet IN ACCESS SHARE MODE").await.unwrap();
    let starting = migrating(&server);
    let mut number = 0;
    while !starting.is_finished() {
        number += 1;
        assert!(matches!(claim(&store, &format!("order {number}")).await, ClaimAnswer::Granted(_)));
    }
    let error = starting.await.unwrap().unwrap_err();
    assert!(error.is_transient() && error.to_string().contains("55P03"), "{error}");
    reading.rollback().await.unwrap();
    migrate(&server.url()).await.unwrap();
    assert_eq!(server.sql(INDEX), "true");
}
