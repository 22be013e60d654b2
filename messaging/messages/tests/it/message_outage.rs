//! What a consumer does when its store is down, and with what can never go well.

use crate::message_support;

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use futures_util::stream;

use idem::message::{Consumer, Progress, Reason, Summary};
use idem::{Error, KeyRing, MemoryStore, Operation, StoreExt as _};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::{Instant, sleep};

use message_support::{Broker, Failing, Failure, Message, SCOPE, Shop, key, logged};

const OUTAGE: Duration = Duration::from_secs(600);

/// What became of the messages of a consumer over a store that was down for ten minutes.
struct Outcome {
    summary: Summary,
    /// How often the broker delivered a message.
    deliveries: usize,
    /// How many of them in the outage.
    in_the_outage: usize,
    heard: Vec<String>,
    ran: Vec<String>,
}

/// A consumer of these messages over a store that is down for ten minutes from the start, and a broker that
/// delivers again what it is told to.
async fn through_an_outage(texts: &[&str], fault: Fault) -> Outcome {
    let memory = MemoryStore::new();
    let store = FaultStore::new(memory.clone());
    store.always(OperationKind::Claim, fault);
    let (shop, broker) = (Shop::on(store.clone()), Broker::new(&memory));
    let begin = Instant::now();
    let (deliveries, in_the_outage) = (Cell::new(0), Cell::new(0));
    broker.queue(texts);
    let delivering = stream::unfold((), |()| async {
        loop {
            if let Some(message) = broker.due() {
                deliveries.set(deliveries.get() + 1);
                if begin.elapsed() < OUTAGE {
                    in_the_outage.set(in_the_outage.get() + 1);
                }
                return Some((message, ()));
            }
            if broker.acknowledged.get() == texts.len() {
                return None;
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    let healing = async {
        sleep(OUTAGE).await;
        store.always(OperationKind::Claim, None);
    };
    let consuming = Consumer::new().run(Box::pin(delivering), |m: &Message| shop.ship(m));
    let (summary, ()) = tokio::join!(consuming, healing);
    let (deliveries, in_the_outage) = (deliveries.get(), in_the_outage.get());
    Outcome { summary, deliveries, in_the_outage, heard: broker.heard(), ran: shop.ran() }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_spends_no_deliveries_and_takes_no_more_messages() {
    let texts: Vec<String> = (0..100).map(|order| format!("{order} ok")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let came = through_an_outage(&texts, Fault::FailBefore).await;
    assert!(came.deliveries == 100 && came.in_the_outage <= 10, "{} {}", came.deliveries, came.in_the_outage);
    assert_eq!((came.summary.retried, came.summary.acknowledged), (0, 100));
    assert_eq!((came.heard.len(), came.ran.len()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn the_order_of_a_group_is_kept_through_an_outage() {
    let texts: Vec<String> = (0..40).map(|order| format!("{order} ok {}", order % 4)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let came = through_an_outage(&texts, Fault::FailBefore).await;
    assert_eq!((came.summary.acknowledged, came.deliveries), (40, 40));
    for group in 0..4 {
        let of_group: Vec<usize> =
            came.ran.iter().map(|order| order.parse().unwrap()).filter(|order| order % 4 == group).collect();
        assert!(of_group.is_sorted() && of_group.len() == 10, "{of_group:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_is_an_outage_too() {
    let came = through_an_outage(&["1 ok", "2 ok"], Fault::HangBefore).await;
    assert_eq!((came.summary.acknowledged, came.deliveries), (2, 2));
}

/// What the second run of a message does whose first found the store failing.
#[derive(Clone, Copy, Debug)]
enum SecondRun {
    Fails,
    Panics,
    EndsWithoutCall,
}

#[tokio::test(start_paused = true)]
async fn a_held_message_that_leaves_without_a_call_does_not_stop_the_consumer() {
    for second in [SecondRun::Fails, SecondRun::Panics, SecondRun::EndsWithoutCall] {
        let memory = MemoryStore::new();
        let store = FaultStore::new(memory.clone());
        store.always(OperationKind::Claim, Fault::FailBefore);
        let (shop, broker, runs) = (Shop::on(store.clone()), Broker::new(&memory), Cell::new(0));
        let healing = async {
            sleep(Duration::from_millis(500)).await;
            store.always(OperationKind::Claim, None);
        };
        let handler = |message: &Message| {
            if message.order == "1" {
                runs.set(runs.get() + 1);
            }
            let without_call = (message.order == "1" && runs.get() == 2).then_some(second);
            let call = shop.ship(message);
            async move {
                match without_call {
                    Some(SecondRun::Fails) => Err(Failure::Transient),
                    Some(SecondRun::Panics) => panic!("a bug before the call"),
                    Some(SecondRun::EndsWithoutCall) => Ok(String::new()),
                    None => call.await,
                }
            }
        };
        let messages = broker.endless(&["1 ok", "2 ok"]);
        let shutdown = sleep(Duration::from_secs(3_600));
        let consumer = Consumer::new().concurrency(1);
        let (_, ()) = tokio::join!(consumer.run_until(shutdown, messages, handler), healing);
        let heard = broker.heard();
        assert!(heard.contains(&"ack 2".to_owned()), "{second:?}: {heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_read_is_rejected() {
    let memory = MemoryStore::new();
    let ring = |byte: u8| KeyRing::new(1, &[byte; 32]);
    let broker = Broker::new(&memory);
    let first = Shop::on(memory.clone().encrypted(ring(1)));
    Consumer::new().run(stream::iter(broker.messages(&["1 ok"])), |m| first.ship(m)).await;
    let second = Shop::on(memory.clone().encrypted(ring(2)).without_mark());
    Consumer::new().run(stream::iter(broker.messages(&["1 ok"])), |m| second.ship(m)).await;
    assert_eq!(broker.heard(), ["ack 1", "reject 1 corrupt_record"]);
}

#[tokio::test(start_paused = true)]
async fn poison_that_panics_before_its_call_ends_in_a_dead_letter_and_frees_its_group() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = broker.messages(&["1 poison a", "2 ok a"]);
    let consuming = Consumer::new().run(stream::iter(messages), |m: &Message| {
        assert!(m.what != "poison", "a bug in the reading of a message");
        shop.ship(m)
    });
    let summary = tokio::time::timeout(Duration::from_secs(3600), consuming).await.unwrap();
    assert_eq!(broker.heard(), ["reject 1 panicked", "ack 2"]);
    assert_eq!((summary.panicked, summary.rejected), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_before_its_call_ends_in_a_dead_letter() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = broker.messages(&["1 ok a"]);
    let failing = |_: &Message| ready(Err::<(), _>(Failure::Transient));
    let consuming = Consumer::new().run(stream::iter(messages), failing);
    tokio::time::timeout(Duration::from_secs(3600), consuming).await.unwrap();
    assert_eq!(broker.heard(), ["reject 1 exhausted"]);
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_an_event_with_the_operation_and_the_digest_of_the_key() {
    let log = logged();
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = broker.messages(&["1 transient", "2 final", "3 ok"]);
    Consumer::new().run(stream::iter(messages), |m| shop.ship(m)).await;
    let unclaimed = broker.messages(&["4 ok"]);
    Consumer::new().run(stream::iter(unclaimed), |_: &Message| ready(Err::<(), _>(Failure::Transient))).await;
    let retried = log.events("message_retried");
    let digest = |order| message_support::key(order).digest().to_string();
    assert_eq!(retried.len(), 2, "{}", log.text());
    assert!(retried[0].contains(SCOPE) && retried[0].contains(&digest("1")), "{retried:?}");
    let rejected = log.events("message_rejected");
    assert!(rejected[0].contains(SCOPE) && rejected[0].contains(&digest("2")), "{rejected:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_held_up_does_not_stop_the_others() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let mut texts = vec!["bad transient busy".to_owned()];
    texts.extend((0..30).map(|order| format!("busy{order} ok busy")));
    texts.extend((0..20).map(|order| format!("other{order} ok {order}")));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let messages = stream::iter(broker.messages(&texts));
    let consuming = Consumer::new().run_until(sleep(Duration::from_secs(60)), messages, |m| shop.ship(m));
    consuming.await;
    let heard = broker.heard();
    let others = heard.iter().filter(|what| what.starts_with("ack other")).count();
    assert_eq!(others, 20, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broker_that_stalls_is_not_told_all_missed_extensions_in_a_burst() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    broker.fail("extend 1", message_support::Failing::Hang);
    let consumer =
        Consumer::new().extend_every(Duration::from_secs(1)).broker_timeout(Duration::from_secs(20));
    let healing = async {
        sleep(Duration::from_millis(20_500)).await;
        broker.heal("extend 1");
    };
    let consuming = consumer.run(stream::iter(broker.messages(&["1 30"])), |m| shop.ship(m));
    tokio::join!(consuming, healing);
    let told = broker.told();
    let at_once = told.iter().filter(|(at, what)| *at == 21 && what.starts_with("extend")).count();
    assert!(at_once <= 2, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_broker_has_delivered_often_enough_is_a_dead_letter_though_it_is_in_no_order() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    for deliveries in [2, 3] {
        broker.deliveries.set(Some(deliveries));
        let messages = broker.messages(&["1 poison"]);
        let consumer = Consumer::new().max_tries(3);
        consumer
            .run(stream::iter(messages), |m: &Message| {
                assert!(m.what != "poison", "a bug in the reading of a message");
                shop.ship(m)
            })
            .await;
    }
    // A panic inside a call has its attempts.
    broker.deliveries.set(None);
    for _ in 0..3 {
        let messages = broker.messages(&["2 panic"]);
        Consumer::new().max_tries(3).run(stream::iter(messages), |m| shop.ship(m)).await;
    }
    let expected = ["retry 1 2s", "reject 1 panicked", "retry 2 1s", "retry 2 2s", "reject 2 panicked"];
    assert_eq!(broker.heard(), expected);
}

#[tokio::test(start_paused = true)]
async fn the_figures_of_a_consumer_that_runs_can_be_read() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Fault::FailBefore);
    let (shop, broker) = (Shop::on(store.clone()), Broker::new(&MemoryStore::new()));
    let progress = Progress::new();
    let consumer = Consumer::new().progress(&progress);
    let watching = async {
        sleep(Duration::from_secs(2)).await;
        let now = progress.summary();
        store.always(OperationKind::Claim, None);
        now
    };
    let messages = stream::iter(broker.messages(&["1 final"]));
    let (summary, now) = tokio::join!(consumer.run(messages, |m| shop.ship(m)), watching);
    assert!((now.taken, now.rejected) == (1, 0) && now.held > 0, "{now:?}");
    assert_eq!((summary.rejected, progress.summary().rejected), (1, 1));
}

/// Counts what is shipped. An order whose amount no fingerprint can have is the message's own fault.
async fn amount(store: &MemoryStore, order: u32, shipped: &Cell<u32>) -> Result<(), Error> {
    let amount = if order.is_multiple_of(400) { f64::NAN } else { f64::from(order) };
    let operation = Operation::new(SCOPE).fingerprint(&amount);
    let ship = async || {
        shipped.set(shipped.get() + 1);
        Ok(())
    };
    operation.run(store, order, ship).await
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_called_for_costs_no_other_message_its_handling() {
    let (store, shipped) = (MemoryStore::new(), Cell::new(0));
    let broker = Broker::new(&store);
    broker.deliveries.set(Some(10));
    let texts: Vec<String> = (0..1_000).map(|order| format!("{order} ok")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let messages = stream::iter(broker.messages(&texts));
    let handler = |m: &Message| {
        let (store, shipped, order) = (&store, &shipped, m.order.parse().unwrap());
        async move { amount(store, order, shipped).await }
    };
    let shutdown = sleep(Duration::from_secs(3600));
    let summary = Consumer::new().run_until(shutdown, messages, handler).await;
    assert_eq!((summary.acknowledged, summary.rejected, shipped.get()), (997, 3, 997), "{summary:?}");
    assert_eq!(broker.letter.borrow().as_ref().unwrap().reason, Reason::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_is_repeated_with_growing_pauses_and_the_message_stays() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    broker.holds.set(true);
    broker.fail("reject 1 terminal", Failing::Error);
    let healing = async {
        sleep(Duration::from_secs(20)).await;
        broker.heal("reject 1 terminal");
    };
    let messages = stream::iter(broker.messages(&["1 final", "2 ok"]));
    let (summary, ()) = tokio::join!(Consumer::new().run(messages, |m| shop.ship(m)), healing);
    assert_eq!((summary.taken, summary.rejected, summary.acknowledged), (2, 1, 1));
    let refused = summary.broker_errors;
    assert!((4..=6).contains(&refused), "pauses of 1, 2, 4, 8 seconds: {refused}");
    assert_eq!(shop.ran(), ["1", "2"], "no handler runs again");
    let letter = broker.letter.borrow().clone().unwrap();
    assert_eq!(
        (letter.reason, letter.tries, letter.operation.as_deref()),
        (Reason::Terminal, 1, Some(SCOPE))
    );
    assert_eq!(letter.key, Some(key("1").digest().to_string()));

    // At the shutdown it is given back.
    broker.fail("reject 3 terminal", Failing::Error);
    broker.told();
    let messages = broker.endless(&["3 final"]);
    let shutdown = sleep(Duration::from_secs(2));
    Consumer::new().run_until(shutdown, messages, |m| shop.ship(m)).await;
    assert_eq!(broker.heard().last().map(String::as_str), Some("back 3"));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_group_cannot_be_told_fails_alone() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    let messages = broker.messages(&["1 ok unknowable", "2 ok"]);
    let summary = Consumer::new().run(stream::iter(messages), |m| shop.ship(m)).await;
    assert_eq!((summary.panicked, summary.acknowledged), (1, 1));
    assert_eq!(broker.told(), message_support::told(&[(0, "retry 1 1s"), (1, "ack 2")]));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_group_cannot_be_told_is_set_aside_where_the_broker_cannot_deliver_it_again() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    broker.in_place.set(true);
    broker.holds.set(true);
    broker.fail("retry 1 1s", Failing::Error);
    let messages = stream::iter(broker.messages(&["1 ok unknowable"]));
    let consuming = Consumer::new().run(messages, |m| shop.ship(m));
    tokio::time::timeout(Duration::from_secs(3_600), consuming).await.expect("it is not repeated for ever");
    assert_eq!(broker.heard(), ["reject 1 panicked"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_extended_until_its_dead_letter_is_stored() {
    let shop = Shop::new();
    let broker = Broker::new(&shop.store);
    broker.holds.set(true);
    broker.fail("reject 1 terminal", Failing::Hang);
    let healing = async {
        sleep(Duration::from_secs(45)).await;
        broker.fail("reject 1 terminal", Failing::Error);
        sleep(Duration::from_secs(30)).await;
        broker.heal("reject 1 terminal");
    };
    let consumer = Consumer::new().extend_every(Duration::from_secs(10));
    let messages = stream::iter(broker.messages(&["1 final"]));
    tokio::join!(consumer.run(messages, |m| shop.ship(m)), healing);
    let events = broker.told();
    let extended = events.iter().filter(|(_, what)| what == "extend 1").map(|(at, _)| *at);
    let times: Vec<u64> = extended.collect();
    assert!(times.starts_with(&[10, 20, 30, 40, 50, 60, 70]), "{events:?}");
}
