//! JetStream's limits, and how the source handles them.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use idem_broker_tests::{Failed, Queue as _, Shop, until, work_off, work_until};
use idem_messages::{CONSUMER, Disposition, ORIGIN, Progress};
use idem_nats::{Consumer, Source};
use idem_test_servers::Nats;
use tokio::sync::Semaphore;

use crate::support::Orders;

#[tokio::test]
async fn a_message_at_its_last_delivery_is_set_aside_before_the_server_forgets_it() {
    let nats = Nats::start();
    let settings = pull::Config { max_deliver: 2, ..pull::Config::default() };
    let orders = Orders::with(&nats.url(), "orders", settings).await;
    let shop = Shop::default();
    orders.send("1").await;
    let again = Disposition::retry(Duration::from_millis(50));
    let fails = shop.notes(move |_| ready(Err(Failed::Becomes(again))));
    work_off(&orders, Shop::settings(), fails).await;
    let letters = orders.letters().await;
    assert_eq!((letters.len(), letters[0].reason.as_deref()), (1, Some("exhausted")));
    assert_eq!(letters[0].error.as_deref(), Some("as it was told"));
    assert_eq!(shop.deliveries(), 2);
}

#[tokio::test]
async fn a_consumer_that_acknowledges_nothing_is_refused() {
    let nats = Nats::start();
    let orders = Orders::open(&nats.url(), "orders").await;
    let stream = orders.jetstream.create_stream("others").await.unwrap();
    let none = pull::Config { ack_policy: AckPolicy::None, ..pull::Config::default() };
    let consumer: PullConsumer = stream.create_consumer(none).await.unwrap();
    let source = Source::new(orders.jetstream.clone(), consumer, "orders-dead");
    let refused = source.run(Consumer::new(), |_| ready(Ok::<_, Failed>(()))).await.unwrap_err();
    assert_eq!(refused.to_string(), "cannot use the consumer: its ack_policy must be `AckPolicy::Explicit`");
}

#[tokio::test]
async fn the_streams_age_is_the_horizon_that_a_ttl_is_held_against() {
    let nats = Nats::start();
    let orders = Orders::open(&nats.url(), "orders").await;
    let shop = Shop::default();
    orders.send("1").await;
    let summary = work_off(&orders, Shop::settings(), shop.ships(Duration::ZERO)).await;
    // The stream keeps messages for seven days, and the operation keeps its results for one day.
    assert_eq!(summary.forgetful.keys().collect::<Vec<_>>(), ["orders.ship"]);
}

#[tokio::test]
async fn a_shutdown_forgets_no_message_that_is_at_its_last_delivery() {
    let nats = Nats::start();
    let settings = pull::Config { max_deliver: 1, ..pull::Config::default() };
    let (orders, shop) = (Orders::with(&nats.url(), "orders", settings).await, Shop::default());
    for order in 0..20 {
        orders.send(&order.to_string()).await;
    }
    let (first, ships) = (Arc::new(Semaphore::new(0)), shop.clone());
    let waits = first.clone();
    // The handler of order 0 ends, so that an eleventh message can be taken. The other handlers hang.
    let hangs = shop.notes(move |order| {
        let (first, shop) = (waits.clone(), ships.clone());
        async move {
            if order != "0" {
                pending::<()>().await;
            }
            let _ = first.acquire().await;
            shop.ship(order, Duration::ZERO).await
        }
    });
    let begun = async {
        until("ten are begun", async || shop.deliveries() == 10).await;
        first.close();
        until("another is begun", async || shop.deliveries() == 11).await;
    };
    work_until(&orders, Shop::settings().grace(Duration::ZERO), hangs, begun).await;
    let next = Shop::default();
    let all = async || shop.effects().len() + orders.letters().await.len() + next.effects().len();
    let settled = until("each is shipped or set aside", async || all().await == 20);
    work_until(&orders, Shop::settings(), next.ships(Duration::ZERO), Box::pin(settled)).await;
}

#[tokio::test]
async fn two_consumers_of_a_stream_set_one_message_aside_twice() {
    let nats = Nats::start();
    let jetstream = async_nats::jetstream::new(async_nats::connect(nats.url()).await.unwrap());
    let stream = jetstream.create_stream("orders").await.unwrap();
    let mut letters = jetstream.create_stream("orders-dead").await.unwrap();
    jetstream.publish("orders", "poison".into()).await.unwrap().await.unwrap();
    for name in ["shippers", "billers"] {
        let durable = pull::Config { durable_name: Some(name.to_owned()), ..pull::Config::default() };
        let consumer: PullConsumer = stream.create_consumer(durable).await.unwrap();
        let source = Source::new(jetstream.clone(), consumer, "orders-dead");
        let progress = Progress::new();
        let poison = |_: &_| ready(Err::<(), _>(Failed::Says(String::new())));
        tokio::select! {
            ended = source.run(Shop::settings().max_tries(1).progress(&progress), poison) => panic!("{ended:?}"),
            () = until("it is set aside", async || progress.summary().rejected == 1) => {}
        }
    }
    assert_eq!(letters.info().await.unwrap().state.messages, 2);
    for (number, name) in [(1, "shippers"), (2, "billers")] {
        let letter = letters.get_raw_message(number).await.unwrap();
        let header = |name: &str| letter.headers.get(name).map(|value| value.as_str().to_owned());
        assert_eq!(header(CONSUMER).as_deref(), Some(name));
        assert_eq!(header(ORIGIN).as_deref(), Some("orders"));
    }
}

#[tokio::test]
async fn a_message_without_room_for_the_error_or_any_header_is_set_aside_without_it() {
    let nats = Nats::start();
    let orders = Orders::open(&nats.url(), "orders").await;
    // The server's `max_payload` is 1 MiB. The first message leaves space for the dead letter's headers
    // without the error, and the second message leaves no space.
    for length in [(1 << 20) - 300, 1 << 20] {
        orders.jetstream.publish("orders", "x".repeat(length).into()).await.unwrap().await.unwrap();
    }
    let shop = Shop::default();
    let poison = shop.notes(|_| ready(Err(Failed::Says("€".repeat(1_000)))));
    let summary = work_off(&orders, Shop::settings().max_tries(1), poison).await;
    assert_eq!((summary.rejected, shop.deliveries()), (2, 2), "{summary:?}");
    let letters = orders.letters().await.into_iter();
    let mut reasons: Vec<_> = letters.map(|letter| (letter.reason, letter.error)).collect();
    reasons.sort();
    assert_eq!(reasons, [(None, None), (Some("exhausted".to_owned()), None)]);
}
