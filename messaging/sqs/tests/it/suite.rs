//! The cases that every broker's crate must pass, and FIFO queues.

use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;

use idem_broker_tests::{
    Failed, Queue as _, Shop, a_message_stays_while_it_cannot_be_set_aside,
    a_message_that_waits_for_a_handler_is_kept_by_its_worker, emptied, every, until_over,
};
use idem_messages::{Disposition, Reason};
use idem_sqs::Received;
use idem_test_servers::Aws;

use crate::support::Orders;

#[tokio::test]
async fn an_sqs_source_does_what_every_source_must() {
    let aws = Aws::start();
    Box::pin(every(async |name| Orders::open(&aws.url(), name, "").await)).await;
    let orders = Orders::open(&aws.url(), "lost", "").await;
    let broken = Orders { dead: format!("{}-nowhere", orders.queue), ..orders.clone() };
    Box::pin(a_message_stays_while_it_cannot_be_set_aside(&orders, &broken)).await;
    a_message_that_waits_for_a_handler_is_kept_by_its_worker(&Orders::open(&aws.url(), "waits", "").await)
        .await;
}

#[tokio::test]
async fn a_group_is_handled_in_order_over_a_retry_and_a_rejection() {
    let aws = Aws::start();
    let orders = Orders::open(&aws.url(), "orders", ".fifo").await;
    for order in ["a1", "a2", "b1", "a3"] {
        let sent = orders.client.send_message().queue_url(&orders.queue).message_body(order);
        sent.message_group_id(&order[..1]).send().await.unwrap();
    }
    let (handled, tries) = (Mutex::new(Vec::new()), Mutex::new(0));
    let handler = |order: &Received| {
        let order = order.body().unwrap().to_owned();
        let becomes = match order.as_str() {
            // This pause is longer than the visibility timeout, which is extended meanwhile.
            "a1" if std::mem::replace(&mut *tries.lock().unwrap(), 1) == 0 => {
                Err(Failed::Becomes(Disposition::retry(Duration::from_secs(7))))
            }
            "a2" => Err(Failed::Becomes(Disposition::reject(Reason::Terminal))),
            _ => Ok(()),
        };
        if becomes.is_ok() {
            handled.lock().unwrap().push(order);
        }
        ready(becomes)
    };
    let source = orders.source();
    let work = until_over(|end| source.run_until(end, Shop::settings(), handler), emptied(&orders));
    let summary = work.await.unwrap();
    assert_eq!((summary.taken, summary.retried, summary.rejected), (4, 1, 1), "{summary:?}");
    assert_eq!(*handled.lock().unwrap(), ["b1", "a1", "a3"]);
    let letters = orders.letters().await;
    assert_eq!((letters.len(), letters[0].reason.as_deref()), (1, Some("terminal")));
}
