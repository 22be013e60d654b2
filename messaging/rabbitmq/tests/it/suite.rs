//! The cases that every broker's crate must pass.

use idem_broker_tests::{a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on, every};

use crate::support::{Node, Orders};

#[tokio::test]
async fn a_rabbitmq_source_does_what_every_source_must() {
    let node = Node::start();
    Box::pin(every(async |name| Orders::open(&node, name).await)).await;
    let (orders, restart) = (Orders::open(&node, "restarted").await, async || node.restart().await);
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(orders, restart).await;
}
