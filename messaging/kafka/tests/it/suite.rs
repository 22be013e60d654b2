//! The cases that every broker's crate must pass.

use idem_broker_tests::{a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on, every};
use idem_test_servers::Kafka;

use crate::support::Orders;

#[tokio::test]
async fn a_kafka_source_that_retries_in_its_worker_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::open(&kafka.servers(), name).await)).await;
}

#[tokio::test]
async fn a_kafka_source_with_a_retry_topic_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::with(&kafka.servers(), name, true).await)).await;
}

#[tokio::test]
async fn a_broker_that_is_restarted_loses_nothing() {
    let mut kafka = Kafka::persistent();
    let orders = Orders::open(&kafka.servers(), "orders").await;
    let restart = async || {
        kafka.server().kill();
        kafka.server().restart();
    };
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(orders, restart).await;
}
