//! Limits of SQS, and how the source handles them.

use idem_broker_tests::{Queue as _, kept_while_it_waits};
use idem_messages::Delivery as _;
use idem_sqs::Received;
use idem_test_servers::Aws;

use crate::support::Orders;

#[tokio::test]
async fn a_message_that_waits_for_a_handler_is_kept_by_its_worker() {
    let aws = Aws::start();
    let orders = Orders::open(&aws.url(), "orders", "").await;
    kept_while_it_waits(
        async |order| orders.send(order).await,
        async |shutdown, settings, handler| {
            let handle =
                |order: &Received| handler(order.body().unwrap().to_owned(), order.deliveries().unwrap());
            orders.source().run_until(shutdown, settings, handle).await.unwrap()
        },
    )
    .await;
}
