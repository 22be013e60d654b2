//! Cases of RabbitMQ alone. A node is slow to start, so several checks share one.

use std::future::{pending, ready};
use std::sync::Mutex;
use std::time::Duration;

use idem_broker_tests::{Failed, Queue as _, Shop, emptied, until, until_over};
use idem_messages::Disposition;
use idem_rabbitmq::{Consumer, Received, Source};
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use tokio::sync::Notify;

use crate::support::{Node, Orders, declare, refusal};

#[tokio::test]
async fn queues_that_are_missing_are_named_and_a_group_keeps_its_order_over_a_retry() {
    let rabbit = Node::start();
    what_is_missing_is_said_before_the_first_message(&rabbit).await;
    messages_of_a_group_are_handled_in_order_though_one_is_retried(&rabbit).await;
    letters_of_a_quorum_queue_outlive_any_number_of_looks(&rabbit).await;
    unread_messages_go_back_while_a_handler_still_runs(&rabbit).await;
}

async fn unread_messages_go_back_while_a_handler_still_runs(rabbit: &Node) {
    let orders = Orders::open(rabbit, "unread").await;
    for order in ["1", "2", "3"] {
        orders.send(order).await;
    }
    let (begun, other_ready) = (Notify::new(), Notify::new());
    let settings = Consumer::new().concurrency(1).grace(Duration::from_secs(3_600));
    let work = orders.source().prefetch(3).run_until(begun.notified(), settings, |_: &Received| async {
        begun.notify_one();
        other_ready.notified().await;
        Ok::<_, Failed>(())
    });
    let (summary, ()) = tokio::join!(work, async {
        let ready = async || {
            let look = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let queue = orders.channel.queue_declare("unread".into(), look, FieldTable::default()).await;
            queue.unwrap().message_count()
        };
        until("the others are ready", async || ready().await == 2).await;
        other_ready.notify_one();
    });
    let summary = summary.unwrap();
    assert_eq!((summary.taken, summary.acknowledged, summary.broker_errors), (1, 1, 0), "{summary:?}");
}

/// RabbitMQ drops what was given back more often than the queue's `x-delivery-limit` says.
async fn letters_of_a_quorum_queue_outlive_any_number_of_looks(rabbit: &Node) {
    let (orders, dead) = (Orders::open(rabbit, "looks").await, "looks-quorum");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(2));
    declare(&orders.channel, dead, arguments).await;
    for letter in ["1", "2"] {
        orders.publish("", dead, letter.as_bytes()).await;
    }
    let source = Source::new(rabbit.url(), orders.name, dead);
    for look in 0..6 {
        assert_eq!(source.dead_letters().await.unwrap().len(), 2, "after {look} looks");
    }
}

async fn what_is_missing_is_said_before_the_first_message(rabbit: &Node) {
    let orders = Orders::open(rabbit, "there").await;
    let source = |queue: &str, dead: &str| Source::new(rabbit.url(), queue, dead);
    for (source, text) in [
        (source("missing", "there"), "cannot find the queue: "),
        (source(orders.name, "missing"), "cannot find the dead letters: "),
        (source(orders.name, "").dead_letter_exchange("missing", ""), "cannot find the dead letters: "),
    ] {
        let missing = refusal(source).await;
        assert!(missing.starts_with(text), "{missing}");
    }
}

async fn messages_of_a_group_are_handled_in_order_though_one_is_retried(rabbit: &Node) {
    let (orders, begun) = (Orders::open(rabbit, "group").await, Mutex::new(Vec::new()));
    for order in ["a1", "a2", "b1", "a3"] {
        orders.send(order).await;
    }
    let group = |order: &Received| Some(String::from_utf8_lossy(order.data.get(..1)?).into_owned());
    let source = orders.source().prefetch(100).group_by(group);
    let handler = |order: &Received| {
        let mut begun = begun.lock().unwrap();
        let is_first = begun.is_empty();
        begun.push(String::from_utf8(order.data.clone()).unwrap());
        let again = Failed::Becomes(Disposition::retry(Duration::from_secs(4)));
        ready(if is_first { Err(again) } else { Ok(()) })
    };
    let summary =
        until_over(|end| source.run_until(end, Shop::settings(), handler), emptied(&orders)).await.unwrap();
    assert_eq!(summary.retried, 1);
    assert_eq!(*begun.lock().unwrap(), ["a1", "b1", "a1", "a2", "a3"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_accepts_and_says_nothing_is_an_error() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://guest:guest@{}/%2f", silent.local_addr().unwrap());
    let source = Source::new(url, "orders", "orders-dead");
    let handle = |_: &Received| pending::<Result<(), Failed>>();
    let error = source.run(Shop::settings(), handle).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot connect: RabbitMQ did not answer in time");
}
