//! The cases that every broker's crate must pass.

use idem_broker_tests::{
    a_message_stays_while_it_cannot_be_set_aside, a_message_that_waits_for_a_handler_is_kept_by_its_worker,
    every,
};
use idem_test_servers::Aws;

use crate::support::Orders;

#[tokio::test]
async fn an_sqs_source_does_what_every_source_must() {
    let aws = Aws::start();
    Box::pin(every(async |name| Orders::open(&aws.url(), name, "").await)).await;
    let orders = Orders::open(&aws.url(), "lost", "").await;
    let broken = Orders { dead: format!("{}-nowhere", orders.queue), ..orders.clone() };
    a_message_stays_while_it_cannot_be_set_aside(&orders, &broken).await;
    a_message_that_waits_for_a_handler_is_kept_by_its_worker(&Orders::open(&aws.url(), "waits", "").await)
        .await;
}
