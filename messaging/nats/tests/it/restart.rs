//! A server that is killed and started again.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Queue as _, Shop, emptied, until};
use idem_test_servers::Nats;

use crate::support::Orders;

#[tokio::test]
async fn a_server_that_is_restarted_loses_nothing_and_the_worker_goes_on() {
    let mut nats = Nats::start();
    let (orders, shop) = (Arc::new(Orders::open(&nats.url(), "orders").await), Shop::default());
    for order in 0..200 {
        orders.send(&order.to_string()).await;
    }
    // In a task of its own, which also shows that the future of `run_until` is `Send`.
    let (worker, handler) = (orders.clone(), shop.ships(Duration::from_millis(50)));
    let worker = tokio::spawn(async move { worker.work(pending().boxed(), Shop::settings(), handler).await });
    until("it works", async || shop.effects().len() > 20).await;
    nats.server().kill();
    nats.server().restart();
    emptied(&*orders).await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut effects = shop.effects();
    assert_eq!(effects.len(), 200);
    effects.dedup();
    assert_eq!(effects.len(), 200);
}
