//! Ships the orders of a JetStream stream: each once, however often it is delivered.

use std::time::Duration;

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::{self, stream};
use idem::message::Consumer;
use idem::{RedisStore, idempotent};
use idem_nats::Source;
use serde::{Deserialize, Serialize};

/// How long JetStream keeps a message. Results are kept for the same time, so that a redelivery finds its
/// result.
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    pieces: u32,
}

#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error("the message is not an order: {0}")]
    NotAnOrder(#[from] serde_json::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

#[idempotent(key = "order/{order.id}", scope = "orders.ship", fingerprint = order.pieces, ttl = "7d", store = store)]
async fn ship(store: &RedisStore, order: &Order) -> Result<String, ShipError> {
    // Ship the order here. Give the carrier `context().downstream_key("carrier")`, which is the same at every
    // attempt.
    Ok(format!("parcel of order {} with {} pieces", order.id, order.pieces))
}

async fn handle(store: &RedisStore, order: serde_json::Result<Order>) -> Result<String, ShipError> {
    ship(store, &order?).await
}

#[tokio::main]
async fn main() -> Result<(), async_nats::Error> {
    tracing_subscriber::fmt::init();
    let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
    let jetstream = jetstream::new(async_nats::connect("127.0.0.1:4222").await?);
    for name in ["orders", "orders-dead"] {
        let config = stream::Config { name: name.into(), max_age: WEEK, ..Default::default() };
        jetstream.get_or_create_stream(config).await?;
    }
    let shippers = pull::Config { durable_name: Some("shippers".into()), ..Default::default() };
    let shippers = jetstream.create_consumer_on_stream(shippers, "orders").await?;

    let summary = Source::new(jetstream, shippers, "orders-dead")
        .run_until(idem::terminated(), Consumer::new().concurrency(10), |message| {
            handle(&store, serde_json::from_slice(&message.payload))
        })
        .await?;
    println!("{summary:?}");
    Ok(())
}
