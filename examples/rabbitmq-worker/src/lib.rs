//! Ships orders from a RabbitMQ queue: the idempotent function [`ship`], and the loop that calls it. The
//! glue between RabbitMQ and [`idem::message`] stands in [`queue`].

pub mod demo;
pub mod queue;

use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{Either, select};
use idem::idempotent;
use idem::message::{Consumer, Dispose as _, Summary};
use queue::{MESSAGE_TTL, Queue};
use worker_demo::{Failure, Order, ShipError, Shipment, Shop};

/// How many orders a worker ships at a time, and how many messages it is given.
pub const CONCURRENCY: u16 = 10;

/// Between attempts to reach a broker that is away.
const PAUSE: Duration = Duration::from_millis(500);

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
///
/// # Errors
///
/// The queue cannot be had, where it was never reached.
pub async fn work(
    url: &str,
    name: &str,
    shop: &Shop,
    shutdown: impl Future<Output = ()>,
) -> Result<Vec<Summary>, Failure> {
    let shutdown = shutdown.shared();
    let mut summaries = Vec::new();
    loop {
        match Queue::open(url, name).await {
            Ok(queue) => summaries.push(consume(&queue, shop, shutdown.clone()).await),
            Err(error) if summaries.is_empty() => return Err(error),
            Err(_) => {}
        }
        // The connection is lost, or it is time to end.
        match select(shutdown.clone(), pin!(tokio::time::sleep(PAUSE))).await {
            Either::Left(_) => return Ok(summaries),
            Either::Right(_) => {}
        }
    }
}

/// Until `shutdown` ends or the connection is lost.
async fn consume(queue: &Queue, shop: &Shop, shutdown: impl Future<Output = ()>) -> Summary {
    let Ok(messages) = queue.messages(CONCURRENCY).await else { return Summary::default() };
    let summary = Consumer::new()
        .concurrency(CONCURRENCY.into())
        .redelivery_horizon(MESSAGE_TTL)
        .dispose(ShipError::disposition)
        .run_until(shutdown, messages, |message| handle(shop, message.order()))
        .await;
    // What was delivered and not taken goes back to the queue with this.
    queue.close().await;
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
