//! The cases that every broker's crate must pass.

use idem_broker_tests::{
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on,
    a_message_stays_while_it_cannot_be_set_aside, every,
};
use idem_test_servers::{Kafka, free_port};
use rdkafka::ClientConfig;

use crate::support::Orders;

#[tokio::test]
async fn a_kafka_source_that_retries_in_its_worker_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::open(&kafka.servers(), name, false).await)).await;
    let orders = Orders::open(&kafka.servers(), "lost", false).await;
    let mut nowhere = ClientConfig::new();
    nowhere.set("bootstrap.servers", format!("127.0.0.1:{}", free_port())).set("message.timeout.ms", "1000");
    let mut broken = Orders::on(&kafka.servers(), "lost", false, "range,roundrobin");
    broken.producer = nowhere.create().unwrap();
    a_message_stays_while_it_cannot_be_set_aside(&orders, &broken).await;
}

#[tokio::test]
async fn a_kafka_source_with_a_retry_topic_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::open(&kafka.servers(), name, true).await)).await;
}

#[tokio::test]
async fn a_broker_that_is_restarted_loses_nothing() {
    let mut kafka = Kafka::persistent();
    let orders = Orders::open(&kafka.servers(), "orders", false).await;
    let restart = async || {
        kafka.server().kill();
        kafka.server().restart();
    };
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(orders, restart).await;
}
