//! Partitions that go from one worker to another.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Queue as _, Shop, emptied, until};
use idem_test_servers::Kafka;

use crate::support::Orders;

/// Two workers, of which the second comes while the first works; `work` is how long each order takes.
async fn second_worker_comes(assignors: &str, work: Duration, orders: usize) -> Shop {
    let (kafka, shop) = (Kafka::start(), Shop::default());
    let queue = Orders::with(&kafka.servers(), "orders", false, assignors).await;
    for order in 0..orders {
        queue.send(&order.to_string()).await;
    }
    let working = || queue.work(pending().boxed(), Shop::settings(), shop.ships(work));
    let joins = async {
        until("the first works", async || shop.effects().len() >= 10).await;
        working().await
    };
    tokio::select! {
        ended = working() => panic!("{ended:?}"),
        ended = joins => panic!("{ended:?}"),
        () = emptied(&queue) => {}
    }
    let mut effects = shop.effects();
    effects.dedup();
    assert_eq!((effects.len(), shop.effects().len()), (orders, orders));
    shop
}

#[tokio::test]
async fn partitions_that_go_to_another_worker_go_when_what_is_in_work_is_done() {
    let shop = second_worker_comes("range,roundrobin", Duration::from_millis(400), 100).await;
    // Nobody was given what another had.
    assert_eq!(shop.deliveries(), 100);
}

#[tokio::test]
async fn what_takes_too_long_is_in_flight_for_the_next_worker_and_is_not_done_twice() {
    // Longer than partitions that are to go are kept.
    let shop = second_worker_comes("range,roundrobin", Duration::from_secs(6), 20).await;
    // The other one was given some of what the first was still at.
    assert!(shop.deliveries() > 20);
}

#[tokio::test]
async fn partitions_go_one_by_one_with_the_cooperative_assignor() {
    let shop = second_worker_comes("cooperative-sticky", Duration::from_millis(400), 100).await;
    assert_eq!(shop.deliveries(), 100);
}
