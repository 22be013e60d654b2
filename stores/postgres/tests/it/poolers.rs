//! Through `PgBouncer`: the work is done, and the sessions that other clients get are as they were.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_postgres::outbox::{Outbox, Relay};
use idem_runtime::Store as _;
use idem_runtime::protocol::ClaimAnswer;
use idem_test_servers::{PgBouncer, Postgres};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Executor as _, PgPool, Row as _};

use crate::connections::{claim, complete, grant};
use crate::outbox_support::{Broker, Running, Then};

/// How many sessions the pooler has on the server.
const SESSIONS: usize = 3;

/// Everything that another client can find in a session: settings, named statements, locks, channels and tables.
const TRACES: &str = "SELECT name || '=' || setting FROM pg_settings WHERE name NOT IN ('application_name') \
    UNION ALL SELECT 'statement ' || name FROM pg_prepared_statements \
    UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() \
    UNION ALL SELECT 'channel ' || name FROM pg_listening_channels() name \
    UNION ALL SELECT 'table ' || oid::regclass FROM pg_class WHERE pg_is_other_temp_schema(relnamespace) IS FALSE \
      AND relpersistence = 't' \
    ORDER BY 1";

/// Another client, whose driver asks for nothing in particular.
async fn another(url: &str) -> PgConnection {
    url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None).connect().await.unwrap()
}

async fn texts(client: &mut PgConnection, statement: &'static str) -> Vec<String> {
    let rows: Vec<PgRow> = client.fetch_all(AssertSqlSafe(statement)).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// What other clients find in all sessions of the pooler: they hold them at the same time.
async fn others_find(url: &str) -> Vec<Vec<String>> {
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = another(url).await;
        client.execute("BEGIN").await.unwrap();
        clients.push(client);
    }
    let (mut found, mut sessions) = (Vec::new(), Vec::new());
    for client in &mut clients {
        sessions.extend(texts(client, "SELECT pg_backend_pid()::text").await);
        found.push(texts(client, TRACES).await);
    }
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!(sessions.len(), SESSIONS, "each client has a session of its own");
    found
}

/// What other clients find through the pooler and not without it, or the other way round.
fn differences(before: &[Vec<String>], after: &[Vec<String>]) -> Vec<String> {
    let missing = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|one| !those.contains(one)).cloned().collect()
    };
    before.iter().zip(after).flat_map(|(a, b)| [missing(a, b), missing(b, a)].concat()).collect()
}

/// A pooler in front of a server, both of the test's own.
fn pooler(server: &mut Postgres, mode: &str, more: &str) -> PgBouncer {
    PgBouncer::start(server, mode, &format!("default_pool_size={SESSIONS}\n{more}"))
}

/// Does `work` by a URL that leads through a pooler of this mode, and looks for what it left to other clients.
pub(crate) fn left_alone(mode: &str, work: impl FnOnce(&str)) {
    let mut server = Postgres::start();
    // In session mode a client keeps its session until it goes, and the kit has more clients than that at once.
    let more = if mode == "session" { "default_pool_size=40" } else { "" };
    let pooler = pooler(&mut server, mode, more);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let before = runtime.block_on(others_find(&server.url()));
    work(&pooler.url());
    let after = runtime.block_on(others_find(&pooler.url()));
    assert_eq!(differences(&before, &after), [""; 0]);
}

/// The store and the outbox do their work through a pooler of this mode, and leave nothing behind.
async fn works_through(mode: &str, more: &str) {
    let mut server = Postgres::start();
    let direct = others_find(&server.url()).await;
    let pooler = pooler(&mut server, mode, more);
    let store = PostgresStore::builder(&pooler.url()).connections(1).connect().await.unwrap();
    for number in 0..10 {
        let name = format!("order {number}");
        let held = grant(&store, &name).await;
        complete(&store, &name, held).await;
        assert!(matches!(claim(&store, &name).await, Ok(ClaimAnswer::Replay(_))));
    }
    assert_eq!(store.purge(10).await.unwrap(), 0);
    drop(store);
    let outbox = Outbox::connect(&pooler.url()).await.unwrap();
    let pool = PgPool::connect(&server.url()).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    outbox.enqueue(&mut tx, "orders", "1").await.unwrap();
    tx.commit().await.unwrap();
    let broker = Broker::new(|_| Then::Take);
    let relay = Relay::new(outbox, broker.clone());
    let relay = Running::start(relay.topics(1).poll_interval(Duration::from_millis(50)));
    broker.until_taken(1).await;
    relay.stop().await;
    assert_eq!(differences(&direct, &others_find(&pooler.url()).await), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_transaction_mode_gives_no_settings_of_the_store_to_other_clients() {
    works_through("transaction", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_drops_the_startup_options_is_found_out() {
    works_through("transaction", "ignore_startup_parameters=options,extra_float_digits").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_in_session_mode_gives_no_settings_of_the_store_to_other_clients() {
    works_through("session", "default_pool_size=20").await;
}
