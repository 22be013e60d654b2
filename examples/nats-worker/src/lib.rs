//! Ships orders from a JetStream stream: the idempotent function [`ship`], and the worker that calls it for each message.

mod demo;

use idem::idempotent;
use idem::message::{Consumer, Summary};
use idem_nats::{Error, Source};
use worker_demo::{Order, ShipError, Shipment, Shop};

pub use demo::OnNats;

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

/// Ships the orders of a source until `shutdown` ends, and then finishes the orders that are begun.
///
/// # Errors
///
/// Those of the source.
pub async fn work(source: Source, shop: &Shop, shutdown: impl Future<Output = ()>) -> Result<Summary, Error> {
    let consumer = Consumer::new().concurrency(CONCURRENCY).dispose(ShipError::disposition);
    source.run_until(shutdown, consumer, |message| handle(shop, Order::parse(&message.payload))).await
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
