//! FIFO queues: groups are handled in order, and dead letters keep their group.

use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Failed, Queue as _, Shop, emptied};
use idem_messages::{Disposition, Reason};

use idem_test_servers::Aws;
use tokio::sync::oneshot;

use crate::support::Orders;

#[tokio::test]
async fn a_group_is_handled_in_order_over_a_retry_and_a_rejection() {
    let aws = Aws::start();
    let orders = Orders::open(&aws.url(), "orders", ".fifo").await;
    for order in ["a1", "a2", "b1", "a3"] {
        let sent = orders.client.send_message().queue_url(&orders.queue).message_body(order);
        sent.message_group_id(&order[..1]).send().await.unwrap();
    }
    let (handled, tries, (end, ended)) = (Mutex::new(Vec::new()), Mutex::new(0), oneshot::channel::<()>());
    let work = orders.source().run_until(ended.map(drop), Shop::settings(), |order| {
        let order = order.body().unwrap().to_owned();
        let becomes = match order.as_str() {
            // Longer than the visibility timeout, which is extended meanwhile.
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
    });
    let (summary, ()) = tokio::join!(work, async {
        emptied(&orders).await;
        end.send(()).unwrap();
    });
    let summary = summary.unwrap();
    assert_eq!((summary.taken, summary.retried, summary.rejected), (4, 1, 1), "{summary:?}");
    assert_eq!(*handled.lock().unwrap(), ["b1", "a1", "a3"]);
    let letters = orders.letters().await;
    assert_eq!((letters.len(), letters[0].reason.as_deref()), (1, Some("terminal")));
}
