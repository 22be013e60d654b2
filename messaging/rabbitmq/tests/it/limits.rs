//! Cases of RabbitMQ alone. A node is slow to start, so several checks share one.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_broker_tests::{Failed, Queue as _, Shop, emptied};
use idem_messages::Disposition;
use idem_rabbitmq::{Consumer, Source};
use tokio::sync::oneshot;

use crate::support::{Node, Orders};

#[tokio::test]
async fn queues_that_are_missing_are_named_and_a_group_keeps_its_order_over_a_retry() {
    let rabbit = Node::start();
    what_is_missing_is_said_before_the_first_message(&rabbit).await;
    messages_of_a_group_are_handled_in_order_though_one_is_retried(&rabbit).await;
}

async fn what_is_missing_is_said_before_the_first_message(rabbit: &Node) {
    let orders = Orders::open(rabbit, "there").await;
    let run = |queue: &str, dead: &str| {
        let source = Source::new(rabbit.url(), queue, dead);
        source.run(Consumer::new(), |_| ready(Ok::<_, Failed>(())))
    };
    let missing = run("missing", "there").await.unwrap_err().to_string();
    assert!(missing.starts_with("cannot find the queue: "), "{missing}");
    let missing = run(orders.name, "missing").await.unwrap_err().to_string();
    assert!(missing.starts_with("cannot find the dead letters: "), "{missing}");
    let exchange = Source::new(rabbit.url(), orders.name, "").dead_letter_exchange("missing", "orders");
    let missing =
        exchange.run(Consumer::new(), |_| ready(Ok::<_, Failed>(()))).await.unwrap_err().to_string();
    assert!(missing.starts_with("cannot find the dead letters: "), "{missing}");
}

async fn messages_of_a_group_are_handled_in_order_though_one_is_retried(rabbit: &Node) {
    let (orders, shop) = (Orders::open(rabbit, "group").await, Shop::default());
    let handled = Arc::new(Mutex::new(Vec::new()));
    for order in ["a1", "a2", "b1", "a3"] {
        orders.send(order).await;
    }
    let source = orders
        .source()
        .prefetch(100)
        .group_by(|order| Some(String::from_utf8_lossy(order.data.get(..1)?).into_owned()));
    let (end, ended) = oneshot::channel::<()>();
    let seen = shop.clone();
    let handler = shop.notes(|order| ready(Ok(order)));
    let work = source.run_until(ended.map(drop), Shop::settings(), |order| {
        let order = String::from_utf8(order.data.clone()).unwrap();
        let first = order == "a1" && seen.begun("a1").is_empty();
        let (handling, handled) = (handler(order.clone()), handled.clone());
        async move {
            handling.await?;
            if first {
                return Err(Failed::Becomes(Disposition::retry(Duration::from_millis(400))));
            }
            handled.lock().unwrap().push(order);
            Ok(())
        }
    });
    let (summary, ()) = tokio::join!(work, async {
        emptied(&orders).await;
        end.send(()).unwrap();
    });
    assert_eq!(summary.unwrap().retried, 1);
    assert_eq!(*handled.lock().unwrap(), ["b1", "a1", "a2", "a3"]);
}
