//! The events and metrics of the outbox, and the private data that they must not contain.

use crate::outbox_support;

use std::collections::BTreeMap;
use std::time::Duration;

use idem_outbox::{MessageId, Outbox, Relay};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use outbox_support::{Bed, Broker, Running, Then, wait};

use crate::events::Events;

const ID: &str = "secret-id";
const PAYLOAD: &str = "secret-payload";
const PENDING: &str = "SELECT count(*) FROM idem_outbox_readable WHERE state = 'pending'";

// On one thread, so that the subscriber gets all events.
#[tokio::test]
async fn messages_are_told_by_topic_number_and_attempt_and_never_by_id_or_payload() {
    let bed = Bed::open().await;
    let (events, _guard) = Events::start();
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _counted = metrics::set_default_local_recorder(&recorder);

    let broker = Broker::new(|seen| match (seen.topic.as_str(), seen.attempt) {
        ("bad", _) => Then::Poison,
        (_, 1) => Then::Fail,
        _ => Then::Take,
    });
    let relay = Running::start(bed.relay(broker.clone()).topics(1));
    for (number, topic) in ["good", "bad"].into_iter().enumerate() {
        let mut tx = bed.begin().await;
        let id = MessageId::new(&format!("{ID}-{number}")).unwrap();
        bed.outbox.enqueue_as(&mut tx, &id, topic, PAYLOAD).await.unwrap();
        tx.commit().await.unwrap();
        let pending = || sqlx::query_scalar::<_, i64>(PENDING).fetch_one(&bed.pool);
        let done = async { while pending().await.unwrap() > 0 {} };
        tokio::time::timeout(Duration::from_secs(30), done).await.expect("it is done");
    }
    relay.stop().await;

    let text = events.text();
    assert!(!text.contains("secret"), "{text}");
    let events: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["target"] == "idem::outbox")
        .map(|line| {
            let (level, fields) = (line["level"].as_str().unwrap().to_owned(), &line["fields"]);
            let text = |name: &str| fields[name].as_str().unwrap_or_default().to_owned();
            assert!(fields["sequence"].is_i64() || text("event") == "held_back", "{fields}");
            (level, text("event"), text("topic"), fields["attempt"].as_u64())
        })
        .filter(|event| event.1 != "held_back")
        .collect();
    let expected = [
        ("WARN", "publish_failed", "good", 1),
        ("DEBUG", "published", "good", 2),
        ("WARN", "publish_failed", "bad", 1),
        ("ERROR", "set_aside", "bad", 1),
    ];
    let expected = expected.map(|(level, event, topic, attempt)| {
        (level.to_owned(), event.to_owned(), topic.to_owned(), Some(attempt))
    });
    assert_eq!(events, expected);

    let mut counts = BTreeMap::new();
    let mut times = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        match value {
            DebugValue::Counter(count) => {
                assert_eq!(key.key().name(), "idem_outbox_events_total");
                let event = key.key().labels().next().unwrap().value().to_owned();
                counts.insert(event, count);
            }
            DebugValue::Histogram(values) => drop(times.insert(key.key().name().to_owned(), values.len())),
            DebugValue::Gauge(_) => panic!("a gauge"),
        }
    }
    counts.remove("held_back");
    let expected = [("publish_failed", 2), ("published", 1), ("set_aside", 1)];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
    let expected = [("idem_outbox_delay_seconds", 1), ("idem_outbox_publish_seconds", 3)];
    assert_eq!(times, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[tokio::test]
async fn a_table_of_the_same_name_in_another_schema_of_the_search_path_is_told() {
    let bed = Bed::open().await;
    bed.sql("create schema other; alter role postgres set search_path = other, public");
    for is_told in [true, false] {
        let (events, _guard) = Events::start();
        // The first one creates a table in its own schema, which the second one finds.
        Outbox::connect(&bed.server.url()).await.unwrap();
        let log = events.text();
        assert_eq!(log.contains("second_table"), is_told, "{log}");
        assert!(!is_told || log.contains("\"schema\":\"public\""), "{log}");
    }
}

// On one thread, so that the subscriber gets the event.
#[tokio::test]
async fn a_server_that_takes_no_writes_is_told_and_left_as_soon_as_another_answers() {
    let bed = Bed::open().await;
    let (events, _guard) = Events::start();
    bed.send("orders", "1").await;
    let read_only =
        |change: &str| bed.sql(&format!("set transaction read write; alter database postgres {change}"));
    read_only("set default_transaction_read_only = on");
    let outbox =
        Outbox::builder(&bed.server.url()).operation_timeout(Duration::from_secs(6)).connect().await.unwrap();
    let broker = Broker::willing();
    let relay = Relay::new(outbox, broker.clone()).topics(1);
    let relay = Running::start(relay.backoff(Duration::from_millis(300), Duration::from_secs(1)));
    wait("the relay was refused", || events.text().contains("relay_failed")).await;
    // Only now: a session that is opened later would already be writable.
    read_only("reset default_transaction_read_only");
    // An interrupted statement would end its session too, but that takes longer.
    let arrival = tokio::time::timeout(Duration::from_secs(5), broker.until_taken(1)).await;
    arrival.expect("the session that takes no writes is left");
    relay.stop().await;
}
