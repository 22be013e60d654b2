//! A relay with publishers that fail, relays that die, and servers that go down.

use crate::outbox_support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use idem_outbox::{MessageId, OnPoison, Outbox, OutboxError, Relay};
use idem_test_servers::meter::Meter;
use tokio::sync::Notify;

use outbox_support::{Bed, Broker, Running, Then, check_first_deliveries, wait, wait_for_sql};

const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_one_relays_at_a_time_and_the_other_topics_are_the_others() {
    let bed = Bed::open().await;
    bed.send("slow", "1").await;
    let first = Broker::new(|_| Then::Hang);
    let patient = bed.relay(first.clone()).topics(1).publish_timeout(HOUR);
    let one = Running::start(patient);
    first.until_taken(1).await;
    let second = Broker::willing();
    let two = bed.run(second.clone());
    for number in 0..5 {
        bed.send("slow", "2").await;
        bed.send("quick", "q").await;
        second.until_taken(number + 1).await;
    }
    assert_eq!(second.payloads(), ["q"; 5]);
    assert_eq!(first.offered().len(), 1);
    one.kill().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_is_asked_to_stop_finishes_what_it_publishes_and_frees_its_topics() {
    let bed = Bed::open().await;
    for number in 1..=3 {
        bed.send("orders", &number.to_string()).await;
    }
    let gate = Arc::new(Notify::new());
    let closed = gate.clone();
    let broker = Broker::new(move |seen| match seen.payload.as_str() {
        "1" => Then::Wait(closed.clone()),
        _ => Then::Take,
    });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = bed.relay(broker.clone()).publish_timeout(HOUR);
    let (asked, is_asked) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run(async {
        drop(stopped.await);
        drop(asked);
    }));
    broker.until_taken(1).await;
    drop(stop);
    drop(is_asked.await);
    gate.notify_one();
    relay.await.unwrap().unwrap();
    assert_eq!(broker.payloads(), ["1"]);
    assert_eq!(bed.count("true"), 2);
    let free = "select count(*) from idem_outbox_topics where owner is null and lease_until = 0";
    assert_eq!(bed.server.sql(free), "1");
    let next = Broker::willing();
    let relay = bed.run(next.clone());
    next.until_taken(2).await;
    relay.stop().await;
    assert_eq!(next.payloads(), ["2", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_fails_is_tried_in_its_place_with_growing_pauses_and_then_set_aside_for_a_person() {
    let bed = Bed::open().await;
    let id = bed.send("orders", "bad").await;
    bed.send("orders", "good").await;
    let cured = Arc::new(AtomicBool::new(false));
    let now = cured.clone();
    let broker = Broker::new(move |seen| match seen.payload.as_str() {
        "bad" if !now.load(Ordering::SeqCst) => Then::Fail,
        _ => Then::Take,
    });
    let begin = Instant::now();
    let relay = bed.relay(broker.clone()).max_attempts(4);
    let relay = Running::start(relay.backoff(Duration::from_millis(50), Duration::from_secs(1)));
    broker.until_taken(1).await;
    // The pauses before the second, third and fourth attempt are at least 50, 100 and 200 ms.
    assert!(begin.elapsed() >= Duration::from_millis(350), "{:?}", begin.elapsed());
    let offered: Vec<_> = broker.offered().into_iter().map(|seen| (seen.payload, seen.attempt)).collect();
    let bad = (1..=4).map(|attempt| ("bad".to_owned(), attempt));
    assert_eq!(offered, bad.chain([("good".to_owned(), 1)]).collect::<Vec<_>>());
    wait("all is noted", || bed.count("state = 'pending'") == 0).await;
    let aside = bed.outbox.set_aside(10).await.unwrap();
    assert_eq!((aside.len(), aside[0].id.as_str(), aside[0].topic.as_str()), (1, id.as_str(), "orders"));
    assert_eq!((aside[0].attempts, aside[0].payload_bytes, aside[0].blocks), (4, 3, false));
    assert_eq!(aside[0].error.as_deref(), Some("the broker did not take it"));
    assert!(aside[0].since.elapsed().unwrap() < Duration::from_secs(60));
    let view = "select state, attempts, last_error, payload_bytes from idem_outbox_readable";
    assert_eq!(bed.server.sql(view), "set_aside|4|the broker did not take it|3");
    let counts = bed.outbox.counts().await.unwrap();
    assert_eq!((counts.pending, counts.set_aside, counts.blocked_topics), (0, 1, 0));
    // `retry` gives the message all its attempts again, under the same id. Only a message that was set aside
    // can be retried.
    cured.store(true, Ordering::SeqCst);
    let id = MessageId::new(&id).unwrap();
    assert!(bed.outbox.retry(&id).await.unwrap());
    broker.until_taken(2).await;
    wait("it is noted", || bed.count("true") == 0).await;
    assert_eq!((broker.taken()[1].id.as_str(), broker.taken()[1].attempt), (id.as_str(), 1));
    assert!(!bed.outbox.retry(&id).await.unwrap() && !bed.outbox.discard(&id).await.unwrap());
    relay.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_or_hangs_uses_up_no_attempts_and_nothing_is_passed_over() {
    let bed = Bed::open().await;
    for number in 1..=4 {
        bed.send("orders", &number.to_string()).await;
    }
    let offered = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let broker = Broker::new(move |_| match offered.fetch_add(1, Ordering::SeqCst) {
        0..6 => Then::Unavailable,
        6 => Then::Hang,
        _ => Then::Take,
    });
    let relay = bed.relay(broker.clone()).publish_timeout(Duration::from_millis(100)).max_attempts(2);
    let relay = Running::start(relay);
    broker.until_taken(5).await;
    relay.stop().await;
    assert_eq!(broker.payloads(), ["1", "1", "2", "3", "4"]);
    assert!(broker.offered().iter().all(|seen| seen.attempt == 1));
    assert_eq!(bed.count("true"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn where_poison_blocks_the_topic_waits_for_a_word_and_goes_on_in_order() {
    let bed = Bed::open().await;
    let broker = Broker::new(|seen| match (seen.payload.as_str(), seen.attempt) {
        ("poison 1" | "poison 2", _) => Then::Poison,
        _ => Then::Take,
    });
    let relay = Running::start(bed.relay(broker.clone()).on_poison(OnPoison::Block));
    for payload in ["1", "poison 1", "2", "poison 2", "3"] {
        bed.send("orders", payload).await;
    }
    wait("it is blocked", || bed.count("state = 'set_aside'") == 1).await;
    bed.send("others", "other").await;
    broker.until_taken(2).await;
    let counts = bed.outbox.counts().await.unwrap();
    assert_eq!((counts.pending, counts.set_aside, counts.blocked_topics), (3, 1, 1));
    let aside = bed.outbox.set_aside(9).await.unwrap();
    assert!(aside[0].blocks);
    // After `retry`, the message comes first again, fails again, and blocks the topic again.
    assert!(bed.outbox.retry(&aside[0].id).await.unwrap());
    let refused = || broker.offered().iter().filter(|seen| seen.payload == "poison 1").count();
    wait("it is tried again", || refused() == 2).await;
    wait("it is blocked again", || bed.count("state = 'set_aside'") == 1).await;
    for _ in 0..2 {
        wait("it is blocked", || bed.count("state = 'set_aside'") == 1).await;
        let aside = bed.outbox.set_aside(9).await.unwrap();
        assert!(bed.outbox.discard(&aside[0].id).await.unwrap());
    }
    wait("all is noted", || bed.count("true") == 0).await;
    relay.stop().await;
    let orders: Vec<_> = broker.taken().into_iter().filter(|seen| seen.topic == "orders").collect();
    assert_eq!(orders.into_iter().map(|seen| seen.payload).collect::<Vec<_>>(), ["1", "2", "3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_ends_each_relay_that_publishes_it_is_set_aside() {
    let bed = Bed::open().await;
    for payload in ["before", "deadly", "after"] {
        bed.send("orders", payload).await;
    }
    let mut deaths = 0;
    let last = loop {
        let broker = Broker::new(|seen| if seen.payload == "deadly" { Then::Hang } else { Then::Take });
        bed.end_leases();
        let relay = Running::start(bed.relay(broker.clone()).max_attempts(2));
        let offered = |payload: &str| broker.offered().iter().any(|seen| seen.payload == payload);
        wait("it is at the deadly one, or beyond", || offered("deadly") || offered("after")).await;
        if offered("deadly") {
            relay.kill().await;
            deaths += 1;
            assert!(deaths < 10);
        } else {
            relay.stop().await;
            break broker;
        }
    };
    // The death of the first relay does not count, because it may have been a deployment.
    assert_eq!(deaths, 3);
    assert_eq!(last.payloads(), ["after"]);
    let aside = bed.outbox.set_aside(9).await.unwrap();
    assert_eq!((aside.len(), aside[0].attempts), (1, 2));
    assert!(aside[0].error.as_deref().unwrap().contains("a relay died"), "{aside:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_wakes_the_relay_long_before_it_would_look() {
    let bed = Bed::open().await;
    let broker = Broker::willing();
    let relay = Running::start(bed.relay(broker.clone()).poll_interval(HOUR));
    for number in 1..=20 {
        bed.send(&format!("topic {}", number % 3), "x").await;
        broker.until_taken(number).await;
        if number == 10 {
            // Ends the listening connection, which the relay opens again.
            bed.sql(TERMINATE);
        }
    }
    relay.stop().await;
}

const TERMINATE: &str = "select count(pg_terminate_backend(pid)) from pg_stat_activity \
                         where pid <> pg_backend_pid() and backend_type = 'client backend'";

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_are_killed_and_sessions_that_are_ended_lose_nothing_and_keep_the_order() {
    let mut bed = Bed::open().await;
    let count = 300;
    for number in 0..count {
        bed.send(&format!("topic {}", number % 3), &number.to_string()).await;
    }
    let broker = Broker::willing();
    let relays: Vec<_> = (0..2).map(|_| Running::start(bed.relay(broker.clone()).batch(5))).collect();
    for kill in [false, true, false, true] {
        let before = broker.taken().len();
        wait("it publishes", || broker.taken().len() > before + 10 || broker.taken().len() >= count).await;
        if kill {
            bed.server.server().kill();
            bed.server.restart();
        } else {
            bed.sql(TERMINATE);
        }
    }
    wait_for_sql(&bed.server, "select count(*) from idem_outbox", "0").await;
    for relay in relays {
        relay.stop().await;
    }
    check_first_deliveries(&broker.taken(), count);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cannot_work_are_refused_at_once() {
    let bed = Bed::open().await;
    let relay = || bed.relay(Broker::willing());
    for (relay, said) in [
        (relay().topics(0), "`topics` is 0"),
        (relay().batch(1_001), "`batch` is 1001"),
        (relay().max_attempts(0), "`max_attempts` is 0"),
        (relay().poll_interval(Duration::ZERO), "`poll_interval`"),
        (relay().publish_timeout(HOUR * 2), "`publish_timeout`"),
        (relay().backoff(Duration::ZERO, HOUR), "`backoff(first)` is 0ns"),
        (relay().backoff(HOUR, Duration::from_secs(1)), "`backoff(longest)` is 1s"),
    ] {
        let error = relay.run(std::future::pending()).await.unwrap_err();
        assert!(matches!(error, OutboxError::Configuration(_)), "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_number_that_was_given_out_before_is_published_too() {
    for keep in [Duration::ZERO, HOUR] {
        let bed = Bed::open().await;
        let port = bed.server.port();
        let meter = Meter::before(port).await.unwrap();
        let url = bed.server.url().replace(&format!(":{port}"), &format!(":{}", meter.port));
        let outbox = Outbox::builder(&url).operation_timeout(Duration::from_secs(2)).connect();
        let gate = Arc::new(Notify::new());
        let closed = gate.clone();
        let broker = Broker::new(move |seen| match seen.payload.as_str() {
            "1" => Then::Wait(closed.clone()),
            _ => Then::Take,
        });
        let relay = Relay::new(outbox.await.unwrap(), broker.clone()).keep_published(keep);
        let relay = Running::start(relay.backoff(Duration::from_millis(10), Duration::from_millis(50)));
        bed.send("orders", "1").await;
        broker.until_taken(1).await;
        // The relay cannot record the published message. Meanwhile, the table changes as in a failover to a
        // new primary that never got this message.
        meter.cut(true);
        gate.notify_one();
        bed.sql("delete from idem_outbox");
        bed.sql("alter table idem_outbox alter column sequence restart with 1");
        bed.send("orders", "2").await;
        assert_eq!(bed.server.sql("select sequence from idem_outbox"), "1");
        meter.cut(false);
        broker.until_taken(2).await;
        assert_eq!(broker.payloads(), ["1", "2"]);
        relay.stop().await;
    }
}
