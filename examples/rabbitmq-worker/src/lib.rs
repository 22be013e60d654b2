//! Ships orders from a RabbitMQ queue: the idempotent function [`ship`], and the loop that calls it. The
//! glue between RabbitMQ and [`idem::message`] stands in [`queue`].

mod demo;
pub mod queue;

use idem::idempotent;
use idem::message::{Consumer, Dispose as _, Summary};
use queue::{MESSAGE_TTL, Taking};
use worker_demo::{Order, ShipError, Shipment, Shop};

pub use demo::OnRabbitMq;

/// How many orders a worker ships at a time, and how many messages it is given.
pub const CONCURRENCY: u16 = 10;

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

/// Ships the orders of the queue of this name until `shutdown` ends, and what is begun is finished. A broker
/// that goes away is waited for.
pub async fn work(url: &str, name: &str, shop: &Shop, shutdown: impl Future<Output = ()>) -> Summary {
    let mut taking = Taking::new(url, name, CONCURRENCY);
    let summary = Consumer::new()
        .concurrency(CONCURRENCY.into())
        .redelivery_horizon(MESSAGE_TTL)
        .dispose(ShipError::disposition)
        .run_until(shutdown, taking.messages(), |message| handle(shop, message.order()))
        .await;
    taking.close().await;
    summary
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
