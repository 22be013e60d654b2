//! Copies that cannot be sent.

use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Failed, Queue as _, Shop, emptied, until};
use idem_runtime::message::{Disposition, Progress, Reason};
use idem_test_servers::{Kafka, free_port};
use rdkafka::ClientConfig;
use rdkafka::producer::FutureProducer;
use tokio::sync::oneshot;

use crate::support::{Orders, body};

#[tokio::test]
async fn a_message_whose_dead_letter_cannot_be_sent_is_handled_again_by_its_worker() {
    let (kafka, shop, progress) = (Kafka::start(), Shop::default(), Progress::new());
    let orders = Orders::open(&kafka.servers(), "orders").await;
    orders.send("1").await;
    let mut nowhere = ClientConfig::new();
    nowhere.set("bootstrap.servers", format!("127.0.0.1:{}", free_port())).set("message.timeout.ms", "1000");
    let nowhere: FutureProducer = nowhere.create().unwrap();
    let ships = shop.clone();
    let handler = shop.notes(move |order| {
        let shop = ships.clone();
        async move {
            match shop.deliveries() {
                1 => Err(Failed::Becomes(Disposition::reject(Reason::Terminal))),
                _ => shop.ship(order, Duration::ZERO).await,
            }
        }
    });
    let (end, ended) = oneshot::channel::<()>();
    let settings = Shop::settings().progress(&progress);
    let source = orders.source().producer(nowhere);
    let work = source.run_until(ended.map(drop), settings, |order| handler(body(order)));
    let (summary, ()) = tokio::join!(work, async {
        until("the dead letter was not sent", async || progress.summary().broker_errors == 1).await;
        assert_eq!(orders.left().await, Some(1), "nothing is committed");
        emptied(&orders).await;
        end.send(()).unwrap();
    });
    let summary = summary.unwrap();
    assert_eq!((summary.taken, summary.rejected, summary.acknowledged), (2, 0, 1), "{summary:?}");
    assert_eq!((shop.deliveries(), shop.effects().len()), (2, 1));
}
