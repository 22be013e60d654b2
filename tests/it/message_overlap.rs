//! Consumers whose handlers overlap, on real servers and with the attribute.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream;
use idem::message::{Consumer, Delivery, Reason, in_tasks};
use idem::{Error, MemoryStore, PostgresStore, RedisStore, idempotent};
use idem_test_servers::{Postgres as PostgresServer, Redis};
use redis::aio::MultiplexedConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor as _, PgPool};
use tokio::time::sleep;

/// A message of a broker that accepts any disposition.
struct Message(u32);

impl Delivery for Message {
    type Error = Infallible;

    async fn acknowledge(self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn retry(self, _: Duration) -> Result<(), Infallible> {
        Ok(())
    }

    async fn reject(self, _: Reason) -> Result<(), Infallible> {
        Ok(())
    }

    async fn give_back(self) -> Result<(), Infallible> {
        Ok(())
    }
}

/// How many bodies run, and how many ran at the most.
#[derive(Default)]
struct AtWork(AtomicUsize, AtomicUsize);

impl AtWork {
    async fn work(&self) {
        let now = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.1.fetch_max(now, Ordering::SeqCst);
        sleep(Duration::from_millis(1)).await;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> usize {
        self.1.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Shop {
    store: RedisStore,
    connection: MultiplexedConnection,
    at_work: std::sync::Arc<AtWork>,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Idem(#[from] Error),
}

#[idempotent(key = "part/{order}", scope = "overlap.part", store = shop.store)]
async fn pack(shop: &Shop, order: u32) -> Result<u32, Failure> {
    Ok(order)
}

/// Makes a call in its body.
#[idempotent(key = "order/{order}", scope = "overlap.ship", store = shop.store)]
async fn ship(shop: &Shop, order: u32) -> Result<u32, Failure> {
    shop.at_work.work().await;
    pack(shop, order).await?;
    let mut connection = shop.connection.clone();
    Ok(redis::cmd("INCR").arg("effects").query_async(&mut connection).await?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_message_has_its_effect_once_and_no_more_bodies_run_than_set_on_redis() {
    let server = Redis::start();
    let connection =
        redis::Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    let store = RedisStore::connect(&server.url()).await.unwrap();
    for tasks in [false, true] {
        let shop =
            Shop { store: store.clone(), connection: connection.clone(), at_work: std::sync::Arc::default() };
        let first = if tasks { 1_000 } else { 0 };
        // Each order comes twice, the second time close behind the first.
        let orders = (0..200).map(|place| Message(first + place / 4 * 2 + place % 2));
        let consumer = Consumer::new().concurrency(2).overlap(14);
        let handler = |m: &Message| {
            let (shop, order) = (shop.clone(), m.0);
            async move { ship(&shop, order).await }
        };
        let summary = if tasks {
            consumer.run(stream::iter(orders), in_tasks(handler)).await
        } else {
            consumer.run(stream::iter(orders), handler).await
        };
        assert_eq!((summary.acknowledged, summary.replayed, summary.retried), (200, 100, 0));
        assert_eq!(shop.at_work.most(), 2);
    }
    let mut connection = connection.clone();
    let effects: u32 = redis::cmd("GET").arg("effects").query_async(&mut connection).await.unwrap();
    assert_eq!(effects, 200);
}

#[idempotent(key = "{order}", missing_key = "run", scope = "overlap.keyless", store = store)]
async fn keyless(store: &MemoryStore, at_work: &AtWork, order: Option<u32>) -> Result<(), Error> {
    at_work.work().await;
    Ok(())
}

#[idempotent(key = "order/{order}", scope = "overlap.pay", store = store, transaction = tx)]
async fn pay(
    store: &PostgresStore,
    tx: &mut sqlx::Transaction<'_, sqlx::Postgres>,
    at_work: &AtWork,
    order: i64,
) -> Result<(), Failure> {
    at_work.work().await;
    sqlx::query("INSERT INTO payments VALUES ($1)").bind(order).execute(&mut **tx).await?;
    Ok(())
}

async fn in_transaction(
    pool: &PgPool,
    store: &PostgresStore,
    at_work: &AtWork,
    order: u32,
) -> Result<(), Failure> {
    let mut tx = pool.begin().await?;
    pay(store, &mut tx, at_work, order.into()).await?;
    Ok(tx.commit().await?)
}

#[tokio::test]
async fn bodies_without_a_key_and_in_transactions_keep_to_the_limit() {
    let (store, at_work) = (MemoryStore::new(), AtWork::default());
    let consumer = || Consumer::new().concurrency(1).overlap(4);
    let orders = || stream::iter((0..20).map(Message));
    let summary = consumer().run(orders(), |_| keyless(&store, &at_work, None)).await;
    assert_eq!((summary.acknowledged, at_work.most()), (20, 1));

    let server = PostgresServer::start();
    let pool = PgPoolOptions::new().max_connections(5).connect(&server.url()).await.unwrap();
    let store = PostgresStore::from_pool(&pool).await.unwrap();
    pool.execute("CREATE TABLE payments (id bigint NOT NULL)").await.unwrap();
    let at_work = AtWork::default();
    let summary = consumer().run(orders(), |m| in_transaction(&pool, &store, &at_work, m.0)).await;
    assert_eq!((summary.acknowledged, at_work.most()), (20, 1));
    assert_eq!(server.sql("select count(*), count(distinct id) from payments"), "20|20");
}
