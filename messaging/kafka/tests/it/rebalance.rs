//! Partitions that go from one worker to another.

use std::future::pending;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Queue as _, Shop, until};

use crate::support::Orders;

/// Drops a worker whose handlers never end, when the time `after` has passed since the start of a second
/// worker.
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
