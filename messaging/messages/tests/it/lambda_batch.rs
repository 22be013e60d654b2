//! Batches as Lambda gives them, and the exact response to each. Here are those of SQS queues, and the helpers.

mod streams;

use std::cell::{Cell, RefCell};
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use idem::lambda::batch::{self, Batch, BatchResponse, OnReject};
use idem::message::{Disposition, Reason};
use idem::{Error, KeyBuilder, MemoryStore, Operation, RecordKey, ResultRules, Scope, Store};
use idem_testing::{Fault, FaultStore, OperationKind};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::message_support::logged;

const SCOPE: &str = "test.lambda";

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error("later")]
    Transient,
    #[error("never")]
    Final,
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] Error),
}

/// A message as Lambda gives it: with an id, a text, and a group in a FIFO queue.
fn message(id: &str, body: &str, group: Option<&str>) -> Value {
    let mut attributes = json!({
        "ApproximateReceiveCount": "1",
        "SentTimestamp": "1545082649183",
        "SenderId": "AIDAIENQZJOLO23YVJ4VO",
        "ApproximateFirstReceiveTimestamp": "1545082649185"
    });
    if let Some(group) = group {
        attributes["MessageGroupId"] = group.into();
        attributes["MessageDeduplicationId"] = id.into();
        attributes["SequenceNumber"] = "18849496460467696128".into();
    }
    json!({
        "messageId": id,
        "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a",
        "body": body,
        "attributes": attributes,
        "messageAttributes": {},
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:orders",
        "awsRegion": "us-east-2"
    })
}

fn event(messages: &[Value]) -> Vec<SqsMessage> {
    let event: SqsEvent = serde_json::from_value(json!({ "Records": messages })).unwrap();
    event.records
}

/// A standard queue's messages, `(id, text)`.
fn standard(messages: &[(&str, &str)]) -> Vec<SqsMessage> {
    event(&messages.iter().map(|(id, body)| message(id, body, None)).collect::<Vec<_>>())
}

/// A FIFO queue's, `(id, text, group)`.
fn fifo(messages: &[(&str, &str, &str)]) -> Vec<SqsMessage> {
    event(&messages.iter().map(|(id, body, group)| message(id, body, Some(group))).collect::<Vec<_>>())
}

/// The identifiers reported, by way of the JSON that Lambda reads.
fn failures(response: &BatchResponse) -> Vec<String> {
    let json = serde_json::to_value(response).unwrap();
    let failures = json["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|failure| failure["itemIdentifier"].as_str().unwrap().to_owned()).collect()
}

/// A shop whose orders say what is to become of them: `ok`, `transient`, `final`, `panic`, `slow`.
#[derive(Default)]
struct Shop {
    store: MemoryStore,
    /// The orders whose body ran.
    ran: RefCell<Vec<String>>,
}

/// Rules with a `terminal` function.
type Rules = ResultRules<String, Failure>;

impl Shop {
    fn operation() -> Operation<Rules> {
        Operation::new(SCOPE)
            .lease(Duration::from_secs(300))
            .terminal(|error| matches!(error, Failure::Final))
    }

    async fn ship(&self, message: SqsMessage) -> Result<String, Failure> {
        let body = message.body.unwrap();
        let (order, what) = body.split_once(' ').unwrap();
        let ship = async || {
            self.ran.borrow_mut().push(order.to_owned());
            sleep(Duration::from_secs(1)).await;
            match what {
                "transient" => Err(Failure::Transient),
                "final" => Err(Failure::Final),
                "panic" => panic!("a bug"),
                "slow" => {
                    sleep(Duration::from_secs(60)).await;
                    Ok(order.to_owned())
                }
                _ => Ok(order.to_owned()),
            }
        };
        Self::operation().run(&self.store, order, ship).await
    }

    async fn process(&self, records: Vec<SqsMessage>) -> Vec<String> {
        failures(&batch::process(records, |message| self.ship(message)).await)
    }

    fn ran(&self) -> Vec<String> {
        self.ran.take()
    }
}

fn key(order: &str) -> RecordKey {
    RecordKey::new(Scope::new(SCOPE).unwrap(), KeyBuilder::new().part(order).finish().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_in_the_same_batch_waits_for_the_first_and_is_done_with_it() {
    let shop = Shop::default();
    let begin = Instant::now();
    let records = standard(&[("m1", "1 ok"), ("m2", "2 ok"), ("m3", "1 ok")]);
    assert_eq!(shop.process(records).await, [""; 0]);
    assert_eq!(shop.ran(), ["1", "2"]);
    assert!(begin.elapsed() < Duration::from_millis(1_050), "{:?}", begin.elapsed());
    // One whose first fails is tried in its place.
    let records = standard(&[("m4", "4 transient"), ("m5", "4 ok")]);
    assert_eq!(shop.process(records).await, ["m4"]);
    assert_eq!(shop.ran(), ["4", "4"]);
}

#[tokio::test(start_paused = true)]
async fn one_bad_record_fails_nobody_else() {
    let shop = Shop::default();
    let records = standard(&[
        ("m1", "1 ok"),
        ("m2", "2 panic"),
        ("m3", "3 transient"),
        ("m4", "4 final"),
        ("m5", "5 ok"),
    ]);
    assert_eq!(shop.process(records).await, ["m2", "m3", "m4"]);
    assert_eq!(shop.ran(), ["1", "2", "3", "4", "5"]);
    // The next delivery runs what may succeed now, and not what failed for good.
    let records = standard(&[("m2", "2 ok"), ("m3", "3 ok"), ("m4", "4 final")]);
    assert_eq!(shop.process(records).await, ["m4"]);
    assert_eq!(shop.ran(), ["2", "3"]);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_record_is_sent_on_and_acknowledged_where_the_user_says_so() {
    let shop = Shop::default();
    let sent_on = Mutex::new(Vec::new());
    let batch = Batch::new().on_reject(|message: SqsMessage, reason| {
        sent_on.lock().unwrap().push((message.message_id.unwrap(), reason));
        std::future::ready(OnReject::Acknowledge)
    });
    let records = standard(&[("m1", "1 final"), ("m2", "2 transient"), ("m3", " ok")]);
    let response = batch.process(records, |message| shop.ship(message)).await;
    assert_eq!(failures(&response), ["m2"]);
    let expected = [("m3".to_owned(), Reason::InvalidKey), ("m1".to_owned(), Reason::Terminal)];
    assert_eq!(*sent_on.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_stops_at_its_first_failure_and_the_others_go_on() {
    let shop = Shop::default();
    let records = fifo(&[
        ("a1", "a1 ok", "a"),
        ("b1", "b1 transient", "b"),
        ("a2", "a2 ok", "a"),
        ("b2", "b2 ok", "b"),
        ("c1", "c1 ok", "c"),
        ("a3", "a3 panic", "a"),
        ("b3", "b3 ok", "b"),
        ("a4", "a4 ok", "a"),
    ]);
    assert_eq!(shop.process(records).await, ["b1", "b2", "a3", "b3", "a4"]);
    // In turn within a group, the groups side by side.
    assert_eq!(shop.ran(), ["a1", "b1", "c1", "a2", "a3"]);
}

#[tokio::test(start_paused = true)]
async fn no_record_is_begun_and_none_is_left_running_when_the_deadline_is_near() {
    let shop = Shop::default();
    let begin = Instant::now();
    let batch = Batch::new()
        .concurrency(2)
        .deadline(SystemTime::now() + Duration::from_millis(4_950))
        .stop_taking(Duration::from_secs(2))
        .cut_off(Duration::from_millis(500));
    let records = standard(&[
        ("m1", "1 ok"),
        ("m2", "2 ok"),
        ("m3", "3 ok"),
        ("m4", "4 slow"),
        ("m5", "5 ok"),
        ("m6", "6 ok"),
        ("m7", "7 ok"),
    ]);
    let response = batch.process(records, |message| shop.ship(message)).await;
    assert_eq!(failures(&response), ["m4", "m6", "m7"]);
    assert_eq!(shop.ran(), ["1", "2", "3", "4", "5"]);
    let taken = begin.elapsed();
    assert!(taken > Duration::from_millis(4_300) && taken <= Duration::from_millis(4_450), "{taken:?}");
    // What was cut off may run again at once.
    assert_eq!(shop.process(standard(&[("m4", "4 ok")])).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_lease_reaches_beyond_the_deadline() {
    let shop = Shop::default();
    let left = Duration::from_secs(5);
    let batch = Batch::new().deadline(SystemTime::now() + left);
    let records = standard(&[("m1", "1 slow")]);
    let working = batch.process(records, |message| shop.ship(message));
    let looking = async {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        while begin.elapsed() < Duration::from_secs(4) {
            sleep(Duration::from_millis(100)).await;
            let record = shop.store.get(&key("1")).await.unwrap().unwrap();
            longest = longest.max(record.lease_until.since(record.created_at));
        }
        longest
    };
    let (_, longest) = tokio::join!(working, looking);
    assert!(longest <= left && longest >= Duration::from_secs(4), "{longest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_record_without_an_identifier_that_fails_has_the_whole_batch_delivered_again() {
    let shop = Shop::default();
    let mut records = standard(&[("m1", "1 ok"), ("m2", "2 transient")]);
    records[1].message_id = None;
    assert_eq!(shop.process(records).await, [""]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_of_a_fair_queue_is_not_an_order() {
    let shop = Shop::default();
    let mut messages = [message("m1", "1 transient", Some("t")), message("m2", "2 ok", Some("t"))];
    for message in &mut messages {
        message["attributes"].as_object_mut().unwrap().remove("SequenceNumber");
        message["attributes"].as_object_mut().unwrap().remove("MessageDeduplicationId");
    }
    assert_eq!(shop.process(event(&messages)).await, ["m1"]);
    assert_eq!(shop.ran(), ["1", "2"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_for_ten_minutes_costs_a_batch_a_delivery_for_each_deadline() {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Some(Fault::FailBefore));
    let operation = Operation::new(SCOPE);
    let (begin, healed) = (Instant::now(), Cell::new(false));
    let mut left = standard(&[("m1", "1 ok"), ("m2", "2 ok"), ("m3", "3 ok")]);
    let mut deliveries = 0;
    while !left.is_empty() {
        deliveries += 1;
        // A function of a minute.
        let batch = Batch::new().deadline(SystemTime::now() + Duration::from_secs(60));
        let processing = batch.process(left.clone(), |message| {
            if begin.elapsed() >= Duration::from_secs(600) && !healed.replace(true) {
                store.always(OperationKind::Claim, None);
            }
            operation.run(&store, message.body.unwrap(), || async { Ok::<_, Error>(()) })
        });
        let failed = failures(&processing.await);
        left.retain(|message| failed.contains(message.message_id.as_ref().unwrap()));
        // The least that a queue takes to give them again.
        sleep(Duration::from_secs(1)).await;
    }
    assert!(deliveries <= 12, "{deliveries}");
}

#[tokio::test(start_paused = true)]
async fn a_record_whose_handler_panics_is_reported_by_an_event_that_names_it() {
    let log = logged();
    let shop = Shop::default();
    assert_eq!(shop.process(standard(&[("m1", "1 panic")])).await, ["m1"]);
    let log = log.text();
    assert!(log.contains("message_panicked") && log.contains("m1"), "{log}");
}

#[tokio::test(start_paused = true)]
async fn a_malformed_record_is_rejected_where_its_error_says_so_and_holds_up_nobody() {
    let shop = Shop::default();
    let set_aside = Mutex::new(Vec::new());
    let batch = Batch::new()
        .dispose(|error: &Failure, deliveries, proposed| {
            assert_eq!(deliveries, 1);
            if matches!(error, Failure::Final) { Disposition::reject(Reason::Terminal) } else { proposed }
        })
        .on_reject(|message: SqsMessage, _| {
            set_aside.lock().unwrap().push(message.message_id.unwrap());
            std::future::ready(OnReject::Acknowledge)
        });
    let records = fifo(&[("a1", "poison", "a"), ("a2", "a2 ok", "a")]);
    let response = batch.process(records, |message| async {
        if message.body.as_ref().unwrap() == "poison" {
            Err(Failure::Final)
        } else {
            shop.ship(message).await
        }
    });
    assert_eq!(failures(&response.await), [""; 0]);
    assert_eq!(*set_aside.lock().unwrap(), ["a1"]);
}
