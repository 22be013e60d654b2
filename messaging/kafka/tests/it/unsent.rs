//! Messages whose copies are too large, and dead letters that a redrive keeps.

use std::future::ready;
use std::time::Duration;

use idem_broker_tests::{Failed, Queue as _, Shop, until};
use idem_kafka::Source;
use idem_messages::{Disposition, OPERATION, ORIGIN, Progress, Reason, Redrive};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::util::Timeout;

use crate::support::{Orders, delivered};

/// A producer that sends no record with more than `most_bytes`.
fn producer(orders: &Orders, most_bytes: &str) -> FutureProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", orders.config.get("bootstrap.servers").unwrap());
    config.set("message.max.bytes", most_bytes).create().unwrap()
}

/// Sends a message of this many bytes, and runs a worker until the message is settled, after one delivery.
async fn settled(
    producer: &FutureProducer,
    bytes: usize,
    source: Source,
    topic: &str,
    disposition: Disposition,
) {
    let (shop, progress, body) = (Shop::default(), Progress::new(), "x".repeat(bytes));
    producer.send(FutureRecord::<str, str>::to(topic).payload(&body), Timeout::Never).await.unwrap();
    let handler = shop.notes(move |_| ready(Err(Failed::Becomes(disposition))));
    let settings = Shop::settings().progress(&progress);
    let is_settled = async || progress.summary().rejected + progress.summary().retried == 1;
    tokio::select! {
        ended = source.run(settings, |order| handler(delivered(order))) => panic!("{ended:?}"),
        () = until("it is settled", is_settled) => {}
    }
    assert_eq!((shop.deliveries(), progress.summary().broker_errors), (1, 0));
}

#[tokio::test]
async fn a_record_larger_than_the_producers_default_is_set_aside() {
    let (_kafka, orders) = Orders::mocked("large", false, "range,roundrobin", 4);
    let source = Source::new(orders.config.clone(), ["large"], "large-dead");
    let rejects = Disposition::reject(Reason::Terminal);
    settled(&producer(&orders, "4000000"), 2_000_000, source, "large", rejects).await;
}

#[tokio::test]
async fn a_record_without_room_for_the_headers_of_a_retry_is_set_aside() {
    let (_kafka, orders) = Orders::mocked("near", true, "range,roundrobin", 4);
    let near = producer(&orders, "2000");
    let source = orders.source().producer(near.clone());
    settled(&near, 1_940, source, "near", Disposition::retry(Duration::from_secs(1))).await;
    assert_eq!(orders.letters().await.len(), 1);
}

#[tokio::test]
async fn a_letter_that_is_left_out_before_one_that_goes_back_is_listed_again() {
    let (_kafka, orders) = Orders::mocked("left-out", false, "range,roundrobin", 1);
    for operation in ["a", "b", "c"] {
        let origin = Header { key: ORIGIN, value: Some("left-out") };
        let headers =
            OwnedHeaders::new().insert(origin).insert(Header { key: OPERATION, value: Some(operation) });
        let letter = FutureRecord::<str, str>::to("left-out-dead").payload(operation).headers(headers);
        orders.producer.send(letter, Timeout::Never).await.unwrap();
    }
    let b = Redrive::matching(|letter| letter.operation.as_deref() == Some("b"));
    let done = orders.redrive(b).await;
    assert_eq!((done.sent, done.kept), (1, 2), "{done:?}");
    // The letter `a` is before the committed offset now, so its copy is at the end of the topic.
    let left: Vec<_> = orders.letters().await.into_iter().map(|letter| letter.operation.unwrap()).collect();
    assert_eq!(left, ["c", "a"]);
    assert_eq!(orders.redrive(Redrive::all()).await.sent, 2);
    assert!(orders.letters().await.is_empty());
}
