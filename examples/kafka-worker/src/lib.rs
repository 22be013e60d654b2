//! Ships orders from a Kafka topic: the idempotent function [`ship`], and the loop that calls it. The glue
//! between Kafka and [`idem::message`] stands in [`topics`].

mod demo;
mod intake;
mod offsets;
pub mod topics;

use idem::idempotent;
use idem::message::{Consumer, Dispose as _, Summary};
use topics::{RETENTION, Topics};
use worker_demo::{Failure, Order, ShipError, Shipment, Shop};

pub use demo::OnKafka;

/// How many orders a worker ships at a time.
pub const CONCURRENCY: usize = 10;

/// Ships an order, once.
///
/// # Errors
///
/// [`ShipError`].
#[idempotent(
    key = "order/{order.id}",
    scope = "orders.ship",
    fingerprint = order.pieces,
    store = shop.store,
    ttl = "7d",
    lease = shop.lease,
    terminal = ShipError::is_final
)]
pub async fn ship(shop: &Shop, order: &Order) -> Result<Shipment, ShipError> {
    shop.pack(order).await
}

/// Ships the orders of a topic, as one of its group, until `shutdown` ends and what is begun is finished. A
/// broker that goes away is waited for.
///
/// # Errors
///
/// The group cannot be joined.
pub async fn work(
    topics: &Topics,
    shop: &Shop,
    shutdown: impl Future<Output = ()>,
) -> Result<Summary, Failure> {
    let mut intake = topics.consume()?;
    let summary = Consumer::new()
        .concurrency(CONCURRENCY)
        .redelivery_horizon(RETENTION)
        .dispose(ShipError::disposition)
        .run_until(shutdown, topics.messages(&mut intake), |message| handle(shop, message.order()))
        .await;
    intake.close().await?;
    Ok(summary)
}

async fn handle(shop: &Shop, order: Result<Order, ShipError>) -> Result<Shipment, ShipError> {
    shop.ledger.add("deliveries", "1").map_err(|error| ShipError::Effect(error.to_string()))?;
    let order = order?;
    if shop.is_transactional() {
        shop.answered(&order, shop.ship_in_transaction(&order)).await
    } else {
        shop.answered(&order, ship(shop, &order)).await
    }
}
