//! The store and the outbox through `PgBouncer`: they work, and leave nothing behind in sessions that other
//! clients get.

use std::sync::Arc;
use std::time::Duration;

use idem_outbox::{Message, Outbox, PublishError, Publisher, Relay};
use idem_postgres::PostgresStore;
use idem_runtime::Store as _;
use idem_test_servers::{PgBouncer, Postgres};
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Executor as _, Row as _};
use tokio::sync::Notify;

use crate::support::{PATIENCE, record, replayed};

/// How many sessions the pooler has on the server.
const SESSIONS: usize = 3;

/// Reads everything that another client can find in a session: settings, named statements, locks, channels
/// and tables.
const TRACES: &str = "SELECT name || '=' || setting FROM pg_settings WHERE name NOT IN ('application_name') \
    UNION ALL SELECT 'statement ' || name FROM pg_prepared_statements \
    UNION ALL SELECT 'lock ' || objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid() \
    UNION ALL SELECT 'channel ' || name FROM pg_listening_channels() name \
    UNION ALL SELECT 'table ' || oid::regclass FROM pg_class WHERE pg_is_other_temp_schema(relnamespace) IS FALSE \
      AND relpersistence = 't' \
    ORDER BY 1";

async fn texts(client: &mut PgConnection, statement: &'static str) -> Vec<String> {
    let rows: Vec<PgRow> = client.fetch_all(AssertSqlSafe(statement)).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// The traces that other clients find in all sessions of the pooler. The clients hold all sessions at the
/// same time.
async fn others_find(url: &str) -> Vec<Vec<String>> {
    // Leaves out a parameter that the driver sends by default and that the pooler refuses.
    let options = url.parse::<PgConnectOptions>().unwrap().extra_float_digits(None);
    let mut clients = Vec::new();
    for _ in 0..SESSIONS {
        let mut client = options.connect().await.unwrap();
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

/// The differences in what other clients find.
fn differences(before: &[Vec<String>], after: &[Vec<String>]) -> Vec<String> {
    let missing = |these: &[String], those: &[String]| -> Vec<String> {
        these.iter().filter(|one| !those.contains(one)).cloned().collect()
    };
    before.iter().zip(after).flat_map(|(a, b)| [missing(a, b), missing(b, a)].concat()).collect()
}

/// A pooler in transaction mode in front of this server.
fn pooler(server: &Postgres, more: &str) -> PgBouncer {
    PgBouncer::start(server, &format!("default_pool_size={SESSIONS}\n{more}"))
}

/// Runs `work` with a URL of a pooler, and checks that other clients find no traces of `work`.
pub(crate) fn left_alone(work: impl FnOnce(&str)) {
    let server = Postgres::shared();
    let pooler = pooler(&server, "");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let before = runtime.block_on(others_find(&server.url()));
    work(&pooler.url());
    let after = runtime.block_on(others_find(&pooler.url()));
    assert_eq!(differences(&before, &after), [""; 0]);
}

/// Accepts a message, and notifies the test.
struct Broker(Arc<Notify>);

impl Publisher for Broker {
    async fn publish(&self, _: &Message) -> Result<(), PublishError> {
        self.0.notify_one();
        Ok(())
    }
}

/// The case of a pooler that refuses the options is in `conformance`.
#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_that_drops_the_startup_options_is_found_out_by_store_and_outbox() {
    let server = Postgres::shared();
    let direct = others_find(&server.url()).await;
    let pooler = pooler(&server, "ignore_startup_parameters=options,extra_float_digits");
    let store = PostgresStore::builder(&pooler.url()).connections(1).connect().await.unwrap();
    for number in 0..10 {
        let name = format!("order {number}");
        record(&store, &name, "done").await;
        assert!(replayed(&store, &name).await.is_some());
    }
    assert_eq!(store.purge(10).await.unwrap(), 0);
    drop(store);
    let outbox = Outbox::connect(&pooler.url()).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    outbox.enqueue(&mut tx, "orders", "1").await.unwrap();
    tx.commit().await.unwrap();
    let notice = Arc::new(Notify::new());
    let relay = Relay::new(outbox, Broker(notice.clone())).topics(1).poll_interval(Duration::from_millis(50));
    let is_taken = async { tokio::time::timeout(PATIENCE, notice.notified()).await.unwrap() };
    relay.run(is_taken).await.unwrap();
    assert_eq!(differences(&direct, &others_find(&pooler.url()).await), [""; 0]);
}
