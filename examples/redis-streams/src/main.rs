//! Ships the orders of the Redis stream `orders`, each once:
//! `cargo run -p redis-streams -- redis://127.0.0.1:6379/`
//!
//! `redis-cli xadd orders '*' order 42` sends an order. Several workers may run at once, and each may be
//! killed at any time. Each effect of an order is an element of the list `effects`. A second argument sets
//! how long shipping takes, in milliseconds.

use std::time::Duration;

use idem::message::{Consumer, Disposition, Reason};
use idem::{RedisStore, idempotent};
use redis::AsyncCommands as _;
use redis::aio::MultiplexedConnection;
use redis_streams::{Group, IDLE, Message};

struct Shop {
    store: RedisStore,
    redis: MultiplexedConnection,
    work: Duration,
}

#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error("the message has no field `order` with a number")]
    NoOrder,
    #[error("Redis: {0}")]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

#[idempotent(key = "order/{order}", scope = "orders.ship", ttl = "7d", lease = "3s", store = shop.store)]
async fn ship(shop: &Shop, order: u64) -> Result<String, ShipError> {
    shop.redis.clone().rpush::<_, _, ()>("effects", order).await?;
    tokio::time::sleep(shop.work).await;
    Ok(format!("parcel of order {order}"))
}

async fn handle(shop: &Shop, order: Option<u64>) -> Result<String, ShipError> {
    ship(shop, order.ok_or(ShipError::NoOrder)?).await
}

fn dispose(error: &ShipError, _: u32, proposed: Disposition) -> Disposition {
    if let ShipError::NoOrder = error { Disposition::reject(Reason::Terminal) } else { proposed }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let millis: u64 = arguments.next().map_or(Ok(0), |millis| millis.parse())?;
    let client = redis::Client::open(&*url)?;
    let redis = client.get_multiplexed_async_connection().await?;
    let shop = Shop { store: RedisStore::connect(url).await?, redis, work: Duration::from_millis(millis) };
    let worker = format!("worker-{}", std::process::id());
    let group = Group { stream: "orders".into(), group: "shippers".into(), worker };
    let consumer = Consumer::new().concurrency(10).extend_every(IDLE / 3).dispose(dispose);
    let messages = group.messages(&client).await?;
    let handler = |message: &Message| handle(&shop, message.entry.get("order"));
    println!("{:?}", consumer.run_until(idem::terminated(), messages, handler).await);
    Ok(())
}
