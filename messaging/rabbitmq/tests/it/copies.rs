//! Copies that RabbitMQ refuses, and what a copy keeps. A node is slow to start, so all checks share one.

use std::future::ready;
use std::sync::Mutex;
use std::time::Duration;

use idem_broker_tests::{Failed, Queue as _, Shop, emptied, until, until_over, work_until};
use idem_messages::{Disposition, Progress, Reason};
use idem_rabbitmq::{Received, Source};
use lapin::ExchangeKind;
use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};

use crate::support::{Node, Orders, refusal};

/// How long the dead letters are away: longer than the delivery limit takes at one delivery a second.
const AWAY: Duration = Duration::from_secs(6);

#[tokio::test]
async fn a_copy_that_is_refused_costs_no_delivery_and_a_copy_keeps_where_it_was_sent() {
    let node = Node::start();
    println!("rights");
    a_user_who_may_not_declare_delay_queues_is_refused_at_the_start(&node).await;
    println!("other arguments");
    a_delay_queue_with_other_arguments_is_named_at_the_start(&node).await;
    println!("channel");
    a_channel_that_the_server_closed_is_replaced(&node).await;
    println!("limit");
    a_message_of_a_quorum_queue_outlives_an_outage_of_its_dead_letters(&node).await;
    println!("origin");
    exchange_and_routing_key_survive_a_retry_and_are_on_the_dead_letter(&node).await;
    println!("full");
    a_retried_message_waits_for_a_queue_that_is_full(&node).await;
    println!("alarm");
    an_alarm_holds_up_copies_and_no_acknowledgement(&node).await;
}

/// RabbitMQ blocks a connection at its first publish, which it may still take.
async fn an_alarm_holds_up_copies_and_no_acknowledgement(node: &Node) {
    let (orders, progress) = (Orders::open(node, "alarm").await, Progress::new());
    for order in ["0", "1", "2", "good"] {
        orders.send(order).await;
    }
    let settings = Shop::settings().progress(&progress).broker_timeout(Duration::from_secs(2));
    let handler = |order: &Received| {
        let (order, progress) = (String::from_utf8(order.data.clone()).unwrap(), &progress);
        let before = order.parse().unwrap_or(u64::MAX);
        async move {
            // One copy after another, until one is held up.
            until("it is its turn", async || {
                let now = progress.summary();
                now.taken == 4 && (now.rejected >= before || now.broker_errors > 0)
            })
            .await;
            if order == "good" { Ok(()) } else { Err(Failed::Becomes(Disposition::reject(Reason::Terminal))) }
        }
    };
    node.alarm(true).await;
    let over = async {
        until("its acknowledgement arrives", async || {
            let now = progress.summary();
            now.acknowledged == 1 && node.left("alarm").await == 3 - now.rejected
        })
        .await;
        node.alarm(false).await;
        emptied(&orders).await;
    };
    let summary = until_over(|end| orders.source().run_until(end, settings, handler), over).await.unwrap();
    assert_eq!((summary.taken, summary.rejected), (4, 3), "{summary:?}");
    // The copy that was under way is stored when the alarm ends, and again by its repetition.
    assert!(orders.letters().await.len() >= 3);
}

async fn a_user_who_may_not_declare_delay_queues_is_refused_at_the_start(node: &Node) {
    let orders = Orders::open(node, "rights").await;
    let url = node.user("reader", "^$");
    let refused = refusal(Source::new(url, orders.name, "rights-dead")).await;
    assert!(refused.starts_with("cannot declare a delay queue: "), "{refused}");
}

async fn a_delay_queue_with_other_arguments_is_named_at_the_start(node: &Node) {
    let orders = Orders::open(node, "names").await;
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    let other = FieldTable::default();
    orders.channel.queue_declare("names-after-60000ms".into(), options, other).await.unwrap();
    let refused = refusal(orders.source()).await;
    assert!(refused.starts_with("cannot declare a delay queue: "), "{refused}");
    assert!(refused.contains("names-after-60000ms"), "{refused}");
}

async fn declare_exchange(orders: &Orders, name: &str, kind: ExchangeKind) {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    orders.channel.exchange_declare(name.into(), kind, options, FieldTable::default()).await.unwrap();
}

async fn bind(orders: &Orders, queue: &str, exchange: &str, key: &str) {
    let (options, none) = (QueueBindOptions::default(), FieldTable::default());
    orders.channel.queue_bind(queue.into(), exchange.into(), key.into(), options, none).await.unwrap();
}

/// Rejects every message whose body is `poison`, and handles the others.
fn rejects(order: &Received) -> Result<(), Failed> {
    if order.data == b"poison" { Err(Failed::Becomes(Disposition::reject(Reason::Terminal))) } else { Ok(()) }
}

async fn a_channel_that_the_server_closed_is_replaced(node: &Node) {
    let (orders, progress) = (Orders::open(node, "channel").await, Progress::new());
    declare_exchange(&orders, "letters", ExchangeKind::Fanout).await;
    bind(&orders, "channel-dead", "letters", "").await;
    let source = orders.source().dead_letter_exchange("letters", "");
    let settings = Shop::settings().progress(&progress);
    let over = async {
        orders.send("1").await;
        until("it works", async || progress.summary().acknowledged == 1).await;
        // A publish to an exchange that does not exist closes its channel.
        let deleted = orders.channel.exchange_delete("letters".into(), ExchangeDeleteOptions::default());
        deleted.await.unwrap();
        orders.send("poison").await;
        until("it was refused", async || progress.summary().broker_errors >= 1).await;
        declare_exchange(&orders, "letters", ExchangeKind::Fanout).await;
        bind(&orders, "channel-dead", "letters", "").await;
        until("it was set aside", async || progress.summary().rejected == 1).await;
    };
    let summary =
        until_over(|end| source.run_until(end, settings, |order| ready(rejects(order))), over).await.unwrap();
    assert_eq!(summary.taken, 2, "the message stayed with its worker");
    assert_eq!(orders.letters().await[0].reason.as_deref(), Some("terminal"));
}

async fn a_message_of_a_quorum_queue_outlives_an_outage_of_its_dead_letters(node: &Node) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(3));
    let (orders, progress) = (Orders::with(node, "limit", arguments).await, Progress::new());
    declare_exchange(&orders, "limits", ExchangeKind::Fanout).await;
    let source = orders.source().dead_letter_exchange("limits", "");
    let settings = Shop::settings().progress(&progress);
    let over = async {
        orders.send("poison").await;
        until("it was refused", async || progress.summary().broker_errors >= 1).await;
        tokio::time::sleep(AWAY).await;
        bind(&orders, "limit-dead", "limits", "").await;
        emptied(&orders).await;
    };
    let summary =
        until_over(|end| source.run_until(end, settings, |order| ready(rejects(order))), over).await.unwrap();
    assert_eq!((summary.taken, summary.rejected), (1, 1), "{summary:?}");
    assert_eq!(orders.letters().await.len(), 1);
}

async fn exchange_and_routing_key_survive_a_retry_and_are_on_the_dead_letter(node: &Node) {
    let orders = Orders::open(node, "origin").await;
    declare_exchange(&orders, "events", ExchangeKind::Topic).await;
    bind(&orders, "origin", "events", "order.*").await;
    orders.publish("events", "order.created", b"1").await;
    let origins = Mutex::new(Vec::new());
    let handler = |order: &Received| {
        let mut seen = origins.lock().unwrap();
        seen.push((order.exchange.to_string(), order.routing_key.to_string()));
        ready(Err::<(), _>(Failed::Becomes(match seen.len() {
            1 => Disposition::retry(Duration::from_millis(100)),
            _ => Disposition::reject(Reason::Terminal),
        })))
    };
    until_over(|end| orders.source().run_until(end, Shop::settings(), handler), emptied(&orders))
        .await
        .unwrap();
    let sent_to = ("events".to_owned(), "order.created".to_owned());
    assert_eq!(*origins.lock().unwrap(), [sent_to.clone(), sent_to]);
    let letter = orders.letter().await;
    assert_eq!(letter.get("idem-exchange").map(String::as_str), Some("events"));
    assert_eq!(letter.get("idem-routing-key").map(String::as_str), Some("order.created"));
}

async fn a_retried_message_waits_for_a_queue_that_is_full(node: &Node) {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(1));
    arguments.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let (orders, shop) = (Orders::with(node, "full", arguments).await, Shop::default());
    orders.send("late").await;
    let again = Mutex::new(Some(Failed::Becomes(Disposition::retry(Duration::from_secs(1)))));
    let fails = shop.notes(move |_| ready(Err(again.lock().unwrap().take().expect("one message"))));
    let tried = until("it was tried", async || shop.deliveries() == 1);
    let summary = work_until(&orders, Shop::settings(), fails, tried).await;
    assert_eq!(summary.retried, 1, "{summary:?}");
    // Nobody consumes while the message's pause ends, and the queue has no room for it.
    for _ in 0..4 {
        orders.publish("", "full", b"filler").await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    orders.channel.queue_purge("full".into(), QueuePurgeOptions::default()).await.unwrap();
    let shipped = until("it is shipped", async || shop.effects().contains(&"late".to_owned()));
    work_until(&orders, Shop::settings(), shop.ships(Duration::ZERO), shipped).await;
}
