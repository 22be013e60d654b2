//! What every broker's crate must do.

use idem_broker_tests::every;
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
    Box::pin(every(async |name| Orders::with(&kafka.servers(), name, true, "range,roundrobin").await)).await;
}
