//! The cases that every broker's crate must pass.

use std::time::Duration;

use idem_broker_tests::{
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on,
    a_worker_that_is_dropped_leaves_its_messages_to_the_next, every,
};
use idem_test_servers::Kafka;

use crate::support::Orders;

/// How long a dropped worker takes at most to leave the group.
const LEFT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_kafka_source_that_retries_in_its_worker_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::open(&kafka.servers(), name).await)).await;
    let mut orders = Orders::open(&kafka.servers(), "dropped").await;
    orders.join_after = LEFT;
    a_worker_that_is_dropped_leaves_its_messages_to_the_next(&orders).await;
}

#[tokio::test]
async fn a_kafka_source_with_a_retry_topic_does_what_every_source_must() {
    let kafka = Kafka::start();
    Box::pin(every(async |name| Orders::with(&kafka.servers(), name, true, "range,roundrobin").await)).await;
    let mut orders = Orders::with(&kafka.servers(), "dropped", true, "cooperative-sticky").await;
    orders.join_after = LEFT;
    a_worker_that_is_dropped_leaves_its_messages_to_the_next(&orders).await;
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
