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
        wait("it is done", || bed.count("state = 'pending'") == 0).await;
    }
    relay.stop().await;

    let text = events.text();
    assert!(!text.contains("secret"), "{text}");
    let events: Vec<_> = events
        .lines()
        .into_iter()
        .filter(|line| line["target"] == "idem::outbox" && line["fields"]["event"] != "held_back")
        .map(|line| {
            let fields = &line["fields"];
            assert!(fields["sequence"].is_i64(), "{fields}");
            let values = [&line["level"], &fields["event"], &fields["topic"], &fields["attempt"]];
            values.map(|value| value.to_string().replace('"', "")).join(" ")
        })
        .collect();
    let expected = [
        "WARN publish_failed good 1",
        "DEBUG published good 2",
        "WARN publish_failed bad 1",
        "ERROR set_aside bad 1",
    ];
    assert_eq!(events, expected);

    let mut counts = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let name = key.key().name();
        let (name, count) = match value {
            DebugValue::Counter(count) => {
                (format!("{name} {}", key.key().labels().next().unwrap().value()), count)
            }
            DebugValue::Histogram(values) => (name.to_owned(), values.len() as u64),
            DebugValue::Gauge(_) => panic!("a gauge"),
        };
        counts.insert(name, count);
    }
    counts.remove("idem_outbox_events_total held_back");
    let expected = [
        ("idem_outbox_delay_seconds", 1),
        ("idem_outbox_events_total publish_failed", 2),
        ("idem_outbox_events_total published", 1),
        ("idem_outbox_events_total set_aside", 1),
        ("idem_outbox_publish_seconds", 3),
    ];
    assert_eq!(counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[tokio::test]
async fn a_table_of_the_same_name_in_another_schema_of_the_search_path_is_told() {
    let bed = Bed::open().await;
    bed.sql("create schema other; alter role postgres set search_path = other, public");
    for is_told in [true, false] {
        let (events, _guard) = Events::start();
        // The first `connect` creates a table in the schema `other`, and the second `connect` finds it.
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
    // The default is reset only after the relay has opened its session, because that session must stay
    // read-only. A session that is opened later is writable.
    read_only("reset default_transaction_read_only");
    // A statement that reaches the operation timeout would end the session, too, but only after 6 s.
    let arrival = tokio::time::timeout(Duration::from_secs(5), broker.until_taken(1)).await;
    arrival.expect("the session that takes no writes is left");
    relay.stop().await;
}
