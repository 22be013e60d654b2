//! Partitions that go from one worker to another.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Queue as _, Shop, emptied, until};

use crate::support::Orders;

/// Runs two workers. The second worker joins while the first one works. Each order takes the time `work`. A
/// rebalance of the mock broker takes five seconds.
async fn second_worker_comes(assignors: &str, work: Duration, orders: usize) -> Shop {
    let shop = Shop::default();
    let (_kafka, queue) = Orders::mocked("orders", false, assignors, 4);
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

/// This test takes longer than 30 s, because the second worker finds calls in flight. It handles their
/// messages again only when the leases of these calls may have expired.
#[tokio::test]
async fn what_takes_too_long_is_in_flight_for_the_next_worker_and_is_not_done_twice() {
    let shop = second_worker_comes("range,roundrobin", Duration::from_secs(10), 20).await;
    // Some messages that the first worker was still handling came again.
    assert!(shop.deliveries() > 20);
}

#[tokio::test]
async fn partitions_go_one_by_one_with_the_cooperative_assignor() {
    second_worker_comes("cooperative-sticky", Duration::from_secs(1), 100).await;
}

/// Starts a worker whose handlers never end, and then a second worker. Drops the first worker when the second
/// worker has run for the time `after`.
async fn dropped(orders: &Orders, after: Duration) {
    let shop = Shop::default();
    for order in 100..120 {
        orders.send(&order.to_string()).await;
    }
    let mut first = Box::pin(orders.work(pending().boxed(), Shop::settings(), shop.notes(|_| pending())));
    tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        () = until("the first works", async || shop.deliveries() >= 10) => {}
    }
    let mut second = Box::pin(orders.work(pending().boxed(), Shop::settings(), shop.ships(Duration::ZERO)));
    tokio::select! {
        ended = &mut first => panic!("{ended:?}"),
        ended = &mut second => panic!("{ended:?}"),
        () = tokio::time::sleep(after) => {}
    }
    drop(first);
    tokio::select! {
        ended = &mut second => panic!("{ended:?}"),
        () = until("all are shipped", async || shop.effects().len() >= 20) => {}
    }
    let all: Vec<_> = (100..120).map(|order| order.to_string()).collect();
    assert_eq!(shop.effects(), all);
}

const ASSIGNORS: [(&str, &str); 2] = [("eager", "range,roundrobin"), ("cooperative", "cooperative-sticky")];

#[tokio::test]
async fn a_worker_that_is_dropped_while_another_joins_leaves_its_messages_to_it() {
    for (name, assignors) in ASSIGNORS {
        // Some points in time between the second worker's request to join and its membership.
        for after in [0, 300, 9_000] {
            let (_kafka, orders) = Orders::mocked(name, false, assignors, 4);
            dropped(&orders, Duration::from_millis(after)).await;
        }
    }
}
