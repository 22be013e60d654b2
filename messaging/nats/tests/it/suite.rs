//! The cases that every broker's crate must pass.

use idem_broker_tests::{
    a_message_stays_while_it_cannot_be_set_aside, a_worker_that_is_dropped_leaves_its_messages_to_the_next,
    every,
};
use idem_test_servers::Nats;

use crate::support::Orders;

#[tokio::test]
async fn a_nats_source_does_what_every_source_must() {
    let nats = Nats::start();
    Box::pin(every(async |name| Orders::open(&nats.url(), name).await)).await;
    a_worker_that_is_dropped_leaves_its_messages_to_the_next(&Orders::open(&nats.url(), "dropped").await)
        .await;
    a_message_stays_while_it_cannot_be_set_aside(&Orders::open(&nats.url(), "lost").await).await;
}
