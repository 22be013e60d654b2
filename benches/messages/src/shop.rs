//! The handlers and their effect.

use std::error::Error;
use std::fmt;

use idem::{RedisStore, idempotent};
use redis::aio::MultiplexedConnection;

pub(crate) type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Clone)]
pub(crate) struct Shop {
    store: RedisStore,
    connection: MultiplexedConnection,
}

impl Shop {
    pub(crate) async fn open(url: &str) -> Anything<Self> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        Ok(Self { store: RedisStore::connect(url).await?, connection })
    }
}

#[derive(Debug)]
pub(crate) enum Failure {
    Message,
    Redis,
    Idem,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Message => "the message has no order",
            Self::Redis => "Redis failed",
            Self::Idem => "the call failed",
        })
    }
}

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self::Idem
    }
}

/// A message about an order.
pub(crate) trait OrderMessage {
    /// The number of the order.
    fn order(&self) -> Result<u64, Failure>;
}

/// Handles a message without the attribute: one command.
pub(crate) async fn handle(shop: &Shop, order: Result<u64, Failure>) -> Result<u64, Failure> {
    order?;
    count(shop).await
}

/// Handles a message with the attribute.
pub(crate) async fn handle_once(shop: &Shop, order: Result<u64, Failure>) -> Result<u64, Failure> {
    count_once(shop, order?).await
}

async fn count(shop: &Shop) -> Result<u64, Failure> {
    let mut connection = shop.connection.clone();
    redis::cmd("INCR").arg("effects").query_async(&mut connection).await.map_err(|_| Failure::Redis)
}

#[idempotent(key = "order/{order}", scope = "cost", store = shop.store, ttl = "1h")]
async fn count_once(shop: &Shop, order: u64) -> Result<u64, Failure> {
    count(shop).await
}
