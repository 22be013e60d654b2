//! Sends messages through NATS JetStream to a consumer. Each handler sends one `INCR` to Redis, with or
//! without the attribute. A measured call publishes a message, and ends when the handler of that message has
//! ended. A replay publishes the duplicate of a message that was handled before.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{Config, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use idem::message::Consumer;
use idem::{RedisStore, idempotent};
use idem_nats::{Received, Source};
use idem_test_servers::{Nats, Redis};
use redis::aio::MultiplexedConnection;
use tokio::sync::oneshot;

use crate::arm::{Anything, Arm, Contest, over};

/// How many messages the consumer handles at once: as many as the largest number of callers.
const AT_ONCE: usize = 64;

/// The calls that wait until their messages are handled, by key.
type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

#[derive(Clone)]
struct Shop {
    store: RedisStore,
    connection: MultiplexedConnection,
}

#[idempotent(key = "order/{order}", scope = "side.by.side.message", store = shop.store, ttl = "1h")]
async fn count_once(shop: &Shop, order: &str) -> Result<u64, idem::Error> {
    Ok(count(shop).await)
}

/// The effect of a message.
async fn count(shop: &Shop) -> u64 {
    let mut connection = shop.connection.clone();
    redis::cmd("INCR").arg("effects").query_async(&mut connection).await.expect("Redis answers")
}

async fn arm(name: &'static str, jetstream: &Context, shop: Shop, is_guarded: bool) -> Anything<Arm> {
    let subject = if is_guarded { "guarded" } else { "bare" };
    let stream = Config {
        name: subject.to_owned(),
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::Memory,
        ..Config::default()
    };
    let settings = pull::Config {
        durable_name: Some("counters".to_owned()),
        ack_wait: Duration::from_secs(30),
        ..pull::Config::default()
    };
    let pull = jetstream.create_stream(stream).await?.create_consumer(settings).await?;
    let waiting = Waiting::default();
    let handled = waiting.clone();
    let handler = move |message: &Received| {
        let (shop, handled) = (shop.clone(), handled.clone());
        let order = String::from_utf8_lossy(&message.payload).into_owned();
        async move {
            let counted = if is_guarded { count_once(&shop, &order).await } else { Ok(count(&shop).await) };
            let waiting = handled.lock().unwrap_or_else(PoisonError::into_inner).remove(&order);
            waiting.map(|waiting| waiting.send(()));
            counted
        }
    };
    // No message is rejected, so no stream for the subject `dead` is needed.
    let source = Source::new(jetstream.clone(), pull, "dead");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let consumer = Consumer::new().concurrency(AT_ONCE);
    std::thread::spawn(move || runtime.block_on(source.run_until(pending(), consumer, handler)));
    let publish = over(&(jetstream.clone(), waiting), move |(jetstream, waiting), key| async move {
        let (sender, handled) = oneshot::channel();
        waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), sender);
        jetstream.publish(subject, key.into()).await?;
        Anything::Ok(handled.await?)
    });
    Ok(Arm { name, fresh: publish.clone(), replay: publish, work: None })
}

async fn arms(redis: String, nats: String) -> Anything<Vec<Arm>> {
    let connection = redis::Client::open(redis.as_str())?.get_multiplexed_async_connection().await?;
    let shop = Shop { store: RedisStore::connect(redis).await?, connection };
    let jetstream = jetstream::new(async_nats::connect(nats).await?);
    Ok(vec![
        arm("a consumer without the attribute", &jetstream, shop.clone(), false).await?,
        arm("a consumer with it", &jetstream, shop, true).await?,
    ])
}

pub(crate) fn contest() -> Anything<Contest> {
    let (redis, nats) = (Redis::start(), Nats::start());
    let (url, broker) = (redis.url(), nats.url());
    let connect = move |redis| arms(redis, broker.clone());
    Ok(Contest::new("messages of NATS, effects in Redis", url, None, (redis, nats), connect))
}
