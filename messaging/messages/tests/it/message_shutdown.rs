//! How a consumer of messages ends.

use std::future::pending;
use std::time::Duration;

use idem::Store;
use idem::message::Consumer;
use idem::protocol::State;
use idem_testing::{Fault, OperationKind};
use tokio::time::{sleep, timeout};

use crate::events::Events;
use crate::message_support::{Shop, key, seconds, told};

#[tokio::test(start_paused = true)]
async fn a_shutdown_begins_nothing_finishes_what_runs_and_gives_back_the_rest_in_order() {
    let shop = Shop::new();
    let texts = ["a1 5 a", "b1 4 b", "a2 ok a", "b2 ok b", "a3 ok a", "c ok", "never taken"];
    let summary = shop.consume_until(2, Consumer::new().concurrency(2).prefetch(6), &texts).await;
    // Messages of a group keep their order. So the consumer gives back a waiting message only after the
    // running message of its group has ended. Otherwise another consumer could handle the later message
    // first.
    let expected =
        [(2, "back c"), (4, "ack b1"), (4, "back b2"), (5, "ack a1"), (5, "back a2"), (5, "back a3")];
    assert_eq!(shop.broker.told(), told(&expected));
    assert_eq!(shop.ran(), ["a1", "b1"]);
    assert_eq!((summary.taken, summary.acknowledged, summary.given_back), (6, 2, 4));
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_outlasts_the_grace_is_dropped_and_given_back_with_its_key_free() {
    let shop = Shop::new();
    shop.store.always(OperationKind::Release, Fault::DelayBefore(seconds(3)));
    let messages = shop.broker.endless(&["1 100 a", "2 ok a", "3 11"]);
    // The handler has its own observer, which must change nothing.
    let observed = async |shipping| idem::observe(shipping).await.value;
    let consumer = Consumer::new().grace(seconds(10));
    let summary = consumer.run_until(sleep(seconds(2)), messages, |m| observed(shop.ship(m))).await;
    assert_eq!(shop.broker.told(), told(&[(11, "ack 3"), (15, "back 1"), (15, "back 2")]));
    let recorded = [Some(State::Completed), Some(State::Released), None];
    assert_eq!(*shop.broker.recorded.borrow(), recorded);
    assert_eq!((summary.acknowledged, summary.given_back), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_takes_no_release_keeps_no_message_from_being_given_back() {
    let shop = Shop::new();
    shop.store.always(OperationKind::Release, Fault::HangBefore);
    shop.consume_until(2, Consumer::new().grace(Duration::ZERO), &["1 100"]).await;
    assert_eq!(shop.broker.told(), told(&[(7, "back 1")]));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_waits_to_be_retried_in_its_order_is_given_back_at_once() {
    let shop = Shop::new();
    // The first message fails at 1, 3 and 6 s, and its next retry would begin at 10 s.
    let summary = shop.consume_until(8, Consumer::new(), &["1 transient a", "2 ok a"]).await;
    assert_eq!(shop.broker.told(), told(&[(8, "back 1"), (8, "back 2")]));
    assert_eq!((summary.retried, summary.given_back), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_dropped_releases_its_keys_and_tells_the_broker_nothing() {
    let shop = Shop::new();
    let messages = shop.broker.endless(&["1 100"]);
    let consumer = Consumer::new().run_until(pending(), messages, |m| shop.ship(m));
    timeout(seconds(5), consumer).await.unwrap_err();
    assert_eq!(shop.store.get(&key("1")).await.unwrap().unwrap().state, State::Released);
    assert_eq!(shop.broker.heard(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_is_shut_down_drains_and_says_what_is_left() {
    let (events, _guard) = Events::start();
    let mut shop = Shop::new();
    shop.operation = shop.operation.lease(seconds(1)).store_timeout(seconds(1));
    shop.store.always(OperationKind::Complete, Fault::FailBefore);
    let summary = shop.consume_until(3, Consumer::new(), &["1 ok"]).await;
    assert_eq!((summary.acknowledged, summary.left.results, summary.left.is_complete()), (1, 1, false));
    assert_eq!(events.only("not_drained")[0], "WARN");

    // If the store recovers soon enough, no work is left behind. The engine retries recording a result within
    // four seconds, and the consumer waits ten.
    let back = async {
        sleep(seconds(3)).await;
        shop.store.always(OperationKind::Complete, None);
    };
    let (summary, ()) = tokio::join!(shop.consume_until(3, Consumer::new(), &["2 ok"]), back);
    assert!(summary.left.is_complete(), "{:?}", summary.left);
    for order in ["1", "2"] {
        assert_eq!(shop.store.get(&key(order)).await.unwrap().unwrap().state, State::Completed);
    }
}
