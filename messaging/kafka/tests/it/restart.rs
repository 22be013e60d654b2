//! A broker that is killed and started again.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Queue as _, Shop, emptied, until};
use idem_test_servers::Kafka;

use crate::support::Orders;

#[tokio::test]
async fn a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on() {
    let mut kafka = Kafka::persistent();
    let (orders, shop) = (Arc::new(Orders::open(&kafka.servers(), "orders").await), Shop::default());
    for order in 0..100 {
        orders.send(&order.to_string()).await;
    }
    // In a task of its own, which also shows that the future of `run_until` is `Send`.
    let (worker, handler) = (orders.clone(), shop.ships(Duration::from_millis(50)));
    let worker = tokio::spawn(async move { worker.work(pending().boxed(), Shop::settings(), handler).await });
    until("it works", async || shop.effects().len() > 20).await;
    kafka.server().kill();
    kafka.server().restart();
    emptied(&*orders).await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut effects = shop.effects();
    assert_eq!(effects.len(), 100);
    effects.dedup();
    assert_eq!(effects.len(), 100);
}
