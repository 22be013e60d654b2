//! Cases for RabbitMQ only. A node is slow to start, so all cases share one node.

use std::future::{pending, ready};
use std::sync::Mutex;
use std::time::Duration;

use idem_broker_tests::rabbitmq::declare;
use idem_broker_tests::{Failed, Queue as _, Shop, emptied, until, until_over, work_until};
use idem_messages::{Disposition, Progress, Reason};
use idem_rabbitmq::{Consumer, Received, Source};
use lapin::ExchangeKind;
use lapin::options::{
    ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions, QueueDeclareOptions, QueuePurgeOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use tokio::sync::Notify;

use crate::support::{Node, Orders, refusal};

/// How long the exchange of the dead letters has no queue. Rejections fail meanwhile. If each failed
/// rejection used up a delivery, the message would reach its delivery limit in less than this time.
const AWAY: Duration = Duration::from_secs(6);

#[tokio::test]
async fn what_rabbitmq_refuses_or_counts_costs_no_message_and_a_copy_keeps_where_it_was_sent() {
    let node = Node::start();
    a_user_who_may_not_declare_delay_queues_is_refused_at_the_start(&node).await;
    a_delay_queue_with_other_arguments_is_named_at_the_start(&node).await;
    a_channel_that_the_server_closed_is_replaced(&node).await;
    a_message_of_a_quorum_queue_outlives_an_outage_of_its_dead_letters(&node).await;
    exchange_and_routing_key_survive_a_retry_and_are_on_the_dead_letter(&node).await;
    a_retried_message_waits_for_a_queue_that_is_full(&node).await;
    what_is_missing_is_said_before_the_first_message(&node).await;
    messages_of_a_group_are_handled_in_order_though_one_is_retried(&node).await;
    letters_of_a_quorum_queue_outlive_any_number_of_looks(&node).await;
    unread_messages_go_back_while_a_handler_still_runs(&node).await;
    an_alarm_holds_up_copies_and_no_acknowledgement(&node).await;
}

/// During an alarm, RabbitMQ blocks a connection when the connection first publishes a message, but may still
/// accept this message.
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
            // The handlers end one after another, so that one copy after another is published, until RabbitMQ
            // blocks a copy.
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
    // The source repeats a copy that was blocked. When the alarm ends, RabbitMQ may store both copies, so
    // there may be more than three letters.
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
    // No worker consumes the queue when the message's pause ends, and the queue has no room for the message.
    for _ in 0..4 {
        orders.publish("", "full", b"filler").await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    orders.channel.queue_purge("full".into(), QueuePurgeOptions::default()).await.unwrap();
    let shipped = until("it is shipped", async || shop.effects().contains(&"late".to_owned()));
    work_until(&orders, Shop::settings(), shop.ships(Duration::ZERO), shipped).await;
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

/// Each listing gives the letters back to the queue. RabbitMQ drops a message that was given back more often
/// than the queue's `x-delivery-limit` allows.
async fn letters_of_a_quorum_queue_outlive_any_number_of_looks(rabbit: &Node) {
    let (orders, dead) = (Orders::open(rabbit, "looks").await, "looks-quorum");
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(2));
    declare(&orders.channel, dead, arguments).await.unwrap();
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
