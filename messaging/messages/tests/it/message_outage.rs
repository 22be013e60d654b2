//! What a consumer does while its store is down, and with messages that can never succeed.

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use futures_util::stream;
use idem::message::{Consumer, KEY, OPERATION, ORIGIN, Progress, REASON, Reason, Redrive, StoredLetter};
use idem::{Error, MemoryStore, Operation};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::sleep;

use crate::events::Events;
use crate::message_support::{Failing, Failure, Message, SCOPE, Shop, key, seconds, told};

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_spends_no_deliveries_takes_no_more_messages_and_keeps_the_order_of_groups() {
    // A store that hangs is down, too.
    for (groups, fault) in [(1_000, Fault::FailBefore), (4, Fault::FailBefore), (1_000, Fault::HangBefore)] {
        let texts: Vec<String> = (0..100).map(|order| format!("{order} ok {}", order % groups)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let (shop, progress) = (Shop::new(), Progress::new());
        shop.store.always(OperationKind::Claim, fault);
        let healing = async {
            sleep(seconds(600)).await;
            let taken = progress.summary().taken;
            assert!(taken > 0 && (groups == 4 || taken <= 10), "{taken}");
            shop.store.always(OperationKind::Claim, None);
        };
        tokio::join!(shop.consume(Consumer::new().progress(&progress), &texts), healing);
        let heard = shop.broker.heard();
        assert!(heard.len() == 100 && heard.iter().all(|what| what.starts_with("ack")), "{heard:?}");
        let ran: Vec<usize> = shop.ran().iter().map(|order| order.parse().unwrap()).collect();
        for group in 0..groups {
            assert!(ran.iter().filter(|order| *order % groups == group).is_sorted(), "{ran:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_held_message_that_leaves_without_a_call_does_not_stop_the_consumer() {
    for second in ["fails", "panics", "ends without a call"] {
        let (shop, runs) = (Shop::new(), Cell::new(0));
        shop.store.always(OperationKind::Claim, Fault::FailBefore);
        let healing = async {
            sleep(Duration::from_millis(500)).await;
            shop.store.always(OperationKind::Claim, None);
        };
        let handler = |message: &Message| {
            runs.set(runs.get() + u32::from(message.order == "1"));
            let without_call = (message.order == "1" && runs.get() == 2).then_some(second);
            let call = shop.ship(message);
            async move {
                match without_call {
                    Some("fails") => Err(Failure::Transient),
                    Some("panics") => panic!("a bug before the call"),
                    Some(_) => Ok(String::new()),
                    None => call.await,
                }
            }
        };
        let messages = shop.broker.endless(&["1 ok", "2 ok"]);
        let consumer = Consumer::new().concurrency(1);
        tokio::join!(consumer.run_until(sleep(seconds(3_600)), messages, handler), healing);
        let heard = shop.broker.heard();
        assert!(heard.contains(&"ack 2".to_owned()), "{second}: {heard:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_failure_is_an_event_with_the_operation_and_the_digest_of_the_key() {
    let (events, _guard) = Events::start();
    Shop::new().consume(Consumer::new(), &["1 transient", "2 final", "3 ok"]).await;
    for (event, order) in [("message_retried", "1"), ("message_rejected", "2")] {
        let (text, digest) = (events.text(), key(order).digest().to_string());
        let lines: Vec<_> = text.lines().filter(|line| line.contains(event)).collect();
        assert!(lines.len() == 1 && lines[0].contains(SCOPE) && lines[0].contains(&digest), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_held_up_does_not_stop_the_others() {
    let shop = Shop::new();
    let mut texts = vec!["bad transient busy".to_owned()];
    texts.extend((0..30).map(|order| format!("busy{order} ok busy")));
    texts.extend((0..20).map(|order| format!("other{order} ok {order}")));
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    shop.consume_until(60, Consumer::new(), &texts).await;
    let heard = shop.broker.heard();
    assert_eq!(heard.iter().filter(|what| what.starts_with("ack other")).count(), 20, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_handler_panics_is_a_dead_letter_after_its_tries_in_an_order_or_in_none() {
    let (events, _guard) = Events::start();
    let shop = Shop::new();
    let careful = |m: &Message| {
        let (is_poison, call) = (m.what == "poison", shop.ship(m));
        async move {
            assert!(!is_poison, "a bug in the reading of a message");
            call.await
        }
    };
    let messages = stream::iter(shop.broker.messages(&["1 poison a", "2 ok a"]));
    let summary = Consumer::new().run(messages, &careful).await;
    assert_eq!(shop.broker.heard(), ["reject 1 panicked", "ack 2"]);
    assert_eq!((summary.panicked, summary.rejected), (10, 1));
    assert!(events.names().contains(&"message_panicked".to_owned()));
    // The broker counts the tries of a message without a group.
    for deliveries in [2, 3] {
        shop.broker.deliveries.set(Some(deliveries));
        let messages = stream::iter(shop.broker.messages(&["1 poison"]));
        Consumer::new().max_tries(3).run(messages, &careful).await;
    }
    // If an idempotent call panics, the number of its attempt counts as the number of the try.
    shop.broker.deliveries.set(None);
    for _ in 0..3 {
        shop.consume(Consumer::new().max_tries(3), &["3 panic"]).await;
    }
    let expected = ["retry 1 2s", "reject 1 panicked", "retry 3 1s", "retry 3 2s", "reject 3 panicked"];
    assert_eq!(shop.broker.heard(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_cannot_be_called_for_costs_no_other_message_its_handling() {
    let (shop, shipped) = (Shop::new(), Cell::new(0));
    shop.broker.deliveries.set(Some(10));
    let texts: Vec<String> = (0..1_000).map(|order| format!("{order} ok")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let handler = |m: &Message| {
        let (store, shipped, order) = (&shop.store, &shipped, m.order.parse::<u32>().unwrap());
        // The amount of some orders cannot be part of a fingerprint.
        let amount = if order.is_multiple_of(400) { f64::NAN } else { f64::from(order) };
        async move {
            let ship = async || {
                shipped.set(shipped.get() + 1);
                Ok::<_, Error>(())
            };
            Operation::new(SCOPE).fingerprint(&amount).run(store, order, ship).await
        }
    };
    let summary = Consumer::new().run(stream::iter(shop.broker.messages(&texts)), handler).await;
    assert_eq!((summary.acknowledged, summary.rejected, shipped.get()), (997, 3, 997), "{summary:?}");
    assert_eq!(shop.broker.letter.borrow().as_ref().unwrap().reason, Reason::Misconfigured);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_is_refused_is_repeated_with_growing_pauses_and_the_message_stays() {
    let shop = Shop::new();
    shop.broker.holds.set(true);
    shop.broker.fail("reject 1 terminal", Failing::Error);
    let healing = async {
        sleep(seconds(20)).await;
        shop.broker.heal("reject 1 terminal");
    };
    let (summary, ()) = tokio::join!(shop.consume(Consumer::new(), &["1 final", "2 ok"]), healing);
    assert_eq!((summary.taken, summary.rejected, summary.acknowledged), (2, 1, 1));
    let refused = summary.broker_errors;
    assert!((4..=6).contains(&refused), "pauses of 1, 2, 4, 8 seconds: {refused}");
    assert_eq!(shop.ran(), ["1", "2"], "no handler runs again");
    let letter = shop.broker.letter.borrow().clone().unwrap();
    let operation = letter.operation.as_deref();
    assert_eq!((letter.reason, letter.tries, operation), (Reason::Terminal, 1, Some(SCOPE)));
    assert_eq!(letter.key, Some(key("1").digest().to_string()));

    // At the shutdown, a message whose rejection still fails is given back.
    shop.broker.fail("reject 3 terminal", Failing::Error);
    shop.consume_until(2, Consumer::new(), &["3 final"]).await;
    assert_eq!(shop.broker.heard().last().map(String::as_str), Some("back 3"));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_group_cannot_be_told_fails_alone_and_is_set_aside_where_it_cannot_come_again() {
    let shop = Shop::new();
    let summary = shop.consume(Consumer::new(), &["1 ok unknowable", "2 ok"]).await;
    assert_eq!((summary.panicked, summary.acknowledged), (1, 1));
    assert_eq!(shop.broker.told(), told(&[(0, "retry 1 1s"), (1, "ack 2")]));
    shop.broker.in_place.set(true);
    shop.broker.holds.set(true);
    shop.broker.fail("retry 1 1s", Failing::Error);
    shop.consume(Consumer::new(), &["1 ok unknowable"]).await;
    assert_eq!(shop.broker.heard(), ["reject 1 panicked"]);
}

#[tokio::test(start_paused = true)]
async fn a_message_is_extended_until_its_dead_letter_is_stored() {
    let shop = Shop::new();
    shop.broker.holds.set(true);
    shop.broker.fail("reject 1 terminal", Failing::Hang);
    let healing = async {
        sleep(seconds(45)).await;
        shop.broker.fail("reject 1 terminal", Failing::Error);
        sleep(seconds(30)).await;
        shop.broker.heal("reject 1 terminal");
    };
    tokio::join!(shop.consume(Consumer::new().extend_every(seconds(10)), &["1 final"]), healing);
    let events = shop.broker.told();
    let extended = events.iter().filter(|(_, what)| what == "extend 1").map(|(at, _)| *at);
    assert!(extended.collect::<Vec<_>>().starts_with(&[10, 20, 30, 40, 50, 60, 70]), "{events:?}");
}

#[tokio::test]
async fn a_dead_letter_whose_record_cannot_be_forgotten_is_not_sent() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::List, Fault::FailBefore);
    let header = |name: &str| match name {
        REASON => Some("terminal".to_owned()),
        OPERATION => Some(SCOPE.to_owned()),
        KEY | ORIGIN => Some("there".to_owned()),
        _ => None,
    };
    let letter = StoredLetter::read("1", header);
    assert!(Redrive::all().sends(letter.clone(), |_| ready(Ok(()))).await.unwrap());
    let mut forgetting = Redrive::all().forgetting(&store);
    let sent = forgetting.sends(letter, |_| ready(Ok(()))).await;
    assert!(sent.is_err() && forgetting.summary().sent == 0, "{sent:?}");
}
