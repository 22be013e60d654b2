//! JetStream's limits, and how the source handles them.

use std::future::{pending, ready};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, PullConsumer, pull};
use futures_util::FutureExt as _;
use idem_broker_tests::{Failed, Queue as _, Shop, until};
use idem_nats::{Consumer, Source};
use idem_runtime::message::Disposition;
use idem_test_servers::Nats;

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
    tokio::select! {
        ended = orders.work(pending().boxed(), Shop::settings(), fails) => panic!("{ended:?}"),
        () = until("it was set aside", async || !orders.dead_letters().await.is_empty()) => {}
    }
    let letters = orders.dead_letters().await;
    assert_eq!((letters[0].body.as_str(), letters[0].reason.as_str()), ("1", "exhausted"));
    assert_eq!(letters[0].error, "as it was told");
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
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let work = orders.work(ended.map(drop).boxed(), Shop::settings(), shop.ships(Duration::ZERO));
    let (summary, ()) = tokio::join!(work, async {
        idem_broker_tests::emptied(&orders).await;
        end.send(()).unwrap();
    });
    // The stream keeps messages for seven days, the operation its results for one.
    assert_eq!(summary.forgetful.keys().collect::<Vec<_>>(), ["orders.ship"]);
}

#[tokio::test]
async fn a_message_without_room_for_the_error_is_set_aside_without_it() {
    let nats = Nats::start();
    let orders = Orders::open(&nats.url(), "orders").await;
    // The server's `max_payload`, less the space of the dead letter's other headers.
    let body = "x".repeat((1 << 20) - 300);
    orders.jetstream.publish("orders", body.into()).await.unwrap().await.unwrap();
    let shop = Shop::default();
    let poison = shop.notes(|_| ready(Err(Failed::Says("€".repeat(1_000)))));
    tokio::select! {
        ended = orders.work(pending().boxed(), Shop::settings().max_tries(1), poison) => panic!("{ended:?}"),
        () = until("it was set aside", async || orders.left().await == Some(0)) => {}
    }
    let letters = orders.dead_letters().await;
    assert_eq!((letters[0].reason.as_str(), letters[0].error.as_str()), ("exhausted", ""));
}
