//! Batches of queues and streams, as Lambda delivers them, and the exact response to each batch.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use aws_lambda_events::event::dynamodb::EventRecord;
use aws_lambda_events::event::kinesis::KinesisEventRecord;
use aws_lambda_events::event::sqs::SqsMessage;
use idem::lambda::batch::{Batch, BatchResponse, OnReject};
use idem::message::{Disposition, Reason};
use idem::protocol::State;
use idem::{Error, MemoryStore, Operation, Store};
use idem_testing::{Fault, OperationKind};
use tokio::time::{Instant, sleep};

use crate::events::Events;
use crate::message_support::{Failure, SCOPE, Shop, key};

/// A message with an id and a text. The text names the order, and says how the order's call ends or how many
/// seconds it takes.
fn message((id, body): &(&str, &str)) -> SqsMessage {
    let mut message = SqsMessage::default();
    (message.message_id, message.body) = (Some((*id).to_owned()), Some((*body).to_owned()));
    message.attributes.insert("ApproximateReceiveCount".to_owned(), "1".to_owned());
    message
}

/// A standard queue's messages, each given as `(id, text)`.
fn standard(messages: &[(&str, &str)]) -> Vec<SqsMessage> {
    messages.iter().map(message).collect()
}

/// A FIFO queue's messages, whose group is the first character of the text.
fn fifo(messages: &[(&str, &str)]) -> Vec<SqsMessage> {
    let mut records = standard(messages);
    for record in &mut records {
        let group = record.body.as_ref().unwrap()[..1].to_owned();
        record.attributes.insert("MessageGroupId".to_owned(), group);
        record.attributes.insert("SequenceNumber".to_owned(), "18849496460467696128".to_owned());
    }
    records
}

/// The reported identifiers, read from the JSON that Lambda reads.
fn failures(response: &BatchResponse) -> Vec<String> {
    let json = serde_json::to_value(response).unwrap();
    let failures = json["batchItemFailures"].as_array().unwrap();
    failures.iter().map(|failure| failure["itemIdentifier"].as_str().unwrap().to_owned()).collect()
}

async fn ship(shop: &Shop, message: SqsMessage) -> Result<String, Failure> {
    let body = message.body.unwrap();
    let (order, what) = body.split_once(' ').unwrap();
    shop.ship_order(order.to_owned(), what.to_owned()).await
}

async fn process(shop: &Shop, records: Vec<SqsMessage>) -> Vec<String> {
    failures(&Batch::new().process(records, |message| ship(shop, message)).await)
}

#[tokio::test(start_paused = true)]
async fn a_rejected_record_is_sent_on_and_acknowledged_where_the_user_says_so_and_holds_up_nobody() {
    let (shop, sent_on) = (Shop::new(), Mutex::new(Vec::new()));
    let batch = Batch::new()
        .dispose(|error: &Failure, deliveries, proposed| {
            assert_eq!(deliveries, 1);
            if matches!(error, Failure::Final) { Disposition::reject(Reason::Terminal) } else { proposed }
        })
        .on_reject(|message: SqsMessage, reason| {
            sent_on.lock().unwrap().push((message.message_id.unwrap(), reason));
            std::future::ready(OnReject::Acknowledge)
        });
    let records =
        fifo(&[("a1", "a1 final"), ("b1", "b1 transient"), ("c1", "c1 malformed"), ("c2", "c2 ok")]);
    let response = batch.process(records, |message| {
        let is_malformed = message.body.as_ref().unwrap().ends_with("malformed");
        let shipping = ship(&shop, message);
        async move { if is_malformed { Err(Failure::Final) } else { shipping.await } }
    });
    assert_eq!(failures(&response.await), ["b1"]);
    let expected = [("c1".to_owned(), Reason::Terminal), ("a1".to_owned(), Reason::Terminal)];
    assert_eq!(*sent_on.lock().unwrap(), expected);
    assert!(shop.ran().contains(&"c2".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_fifo_group_stops_at_its_first_failure_and_the_others_go_on() {
    let shop = Shop::new();
    let records = fifo(&[
        ("a1", "a1 ok"),
        ("b1", "b1 transient"),
        ("a2", "a2 ok"),
        ("b2", "b2 ok"),
        ("c1", "c1 ok"),
        ("a3", "a3 panic"),
        ("b3", "b3 ok"),
        ("a4", "a4 ok"),
    ]);
    assert_eq!(process(&shop, records).await, ["b1", "b2", "a3", "b3", "a4"]);
    // The records of a group run one after another, and the groups run side by side.
    assert_eq!(shop.ran(), ["a1", "b1", "c1", "a2", "a3"]);
    // If a failed record has no identifier, Lambda delivers the whole batch again.
    let mut records = standard(&[("m1", "1 ok"), ("m2", "6 transient"), ("m3", "4 final")]);
    records[1].message_id = None;
    assert_eq!(process(&shop, records).await, ["", "m3"]);
    // The messages of a tenant of a fair queue have no order.
    let mut records = fifo(&[("m1", "t1 transient"), ("m2", "t2 ok")]);
    records.iter_mut().for_each(|record| drop(record.attributes.remove("SequenceNumber")));
    assert_eq!(process(&shop, records).await, ["m1"]);
}

#[tokio::test(start_paused = true)]
async fn no_record_is_begun_and_none_is_left_running_when_the_deadline_is_near() {
    let (shop, begin) = (Shop::new(), Instant::now());
    let batch = Batch::new().concurrency(2).deadline(SystemTime::now() + Duration::from_millis(4_950));
    let texts =
        [("m1", "1 ok"), ("m2", "2 ok"), ("m3", "3 ok"), ("m4", "4 60"), ("m5", "5 ok"), ("m6", "6 ok")];
    let response = batch.process(standard(&texts), |message| ship(&shop, message)).await;
    assert_eq!(failures(&response), ["m4", "m6"]);
    assert_eq!(shop.ran(), ["1", "2", "3", "4", "5"]);
    let taken = begin.elapsed();
    assert!(taken > Duration::from_millis(4_300) && taken <= Duration::from_millis(4_450), "{taken:?}");
    // A record that was cut off may run again at once.
    assert_eq!(process(&shop, standard(&[("m4", "4 ok")])).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_lease_reaches_beyond_the_deadline_and_a_panic_of_on_reject_is_an_event() {
    let (events, _guard) = Events::start();
    let (shop, store, lease) = (Shop::new(), MemoryStore::new(), Mutex::new(None));
    let left = Duration::from_secs(5);
    let set_aside = Operation::new(SCOPE).lease(Duration::from_secs(60));
    let batch = Batch::new().deadline(SystemTime::now() + left).on_reject(|message: SqsMessage, _| async {
        let order = message.message_id.unwrap();
        assert!(order == "1", "a bug");
        let body = || async {
            let record = store.get(&key("1")).await.unwrap().unwrap();
            *lease.lock().unwrap() = Some(record.lease_until.since(record.created_at));
            Ok::<_, Error>(())
        };
        set_aside.run(&store, order, body).await.unwrap();
        OnReject::Acknowledge
    });
    let records = standard(&[("1", "1 final"), ("2", "2 final"), ("3", "3 60")]);
    // The lease of the third record is renewed, but never beyond the deadline.
    let looking = async {
        let (begin, mut longest) = (Instant::now(), Duration::ZERO);
        while begin.elapsed() < Duration::from_secs(4) {
            sleep(Duration::from_millis(100)).await;
            let record = shop.store.get(&key("3")).await.unwrap().unwrap();
            longest = longest.max(record.lease_until.since(record.created_at));
        }
        longest
    };
    let processing = batch.process(records, |message| ship(&shop, message));
    let (response, longest) = tokio::join!(processing, looking);
    assert_eq!(failures(&response), ["2", "3"]);
    assert!(longest <= left && longest >= Duration::from_secs(4), "{longest:?}");
    assert!(lease.lock().unwrap().unwrap() <= left);
    assert_eq!(events.only("message_panicked")[0], "ERROR");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_down_costs_a_batch_a_delivery_for_each_deadline() {
    let shop = Shop::new();
    shop.store.always(OperationKind::Claim, Some(Fault::FailBefore));
    let records = || standard(&[("m1", "1 ok"), ("m2", "2 ok"), ("m3", "3 ok")]);
    // Without a deadline the records are reported at once.
    assert_eq!(process(&shop, records()).await.len(), 3);
    let (begin, minute) = (Instant::now(), Duration::from_secs(60));
    let batch = || Batch::new().deadline(SystemTime::now() + minute);
    let response = batch().process(records(), |message| ship(&shop, message)).await;
    assert_eq!(failures(&response).len(), 3);
    assert!(begin.elapsed() > Duration::from_secs(55) && begin.elapsed() < minute, "{:?}", begin.elapsed());
    let healing = async {
        sleep(minute / 2).await;
        shop.store.always(OperationKind::Claim, None);
    };
    let batch = batch();
    let processing = batch.process(records(), |message| ship(&shop, message));
    let (response, ()) = tokio::join!(processing, healing);
    assert_eq!(failures(&response), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_detached_record_that_is_cut_off_is_waited_for_until_the_deadline() {
    let (shop, operation) = (Shop::new(), Operation::new(SCOPE));
    let detached = async |_: SqsMessage| {
        let body = || async {
            sleep(Duration::from_secs(5)).await;
            Ok::<_, Failure>(5)
        };
        // The handler ends before the body does.
        let call = operation.run_detached(&shop.store, "1".to_owned(), body);
        tokio::time::timeout(Duration::from_secs(1), call).await.unwrap_or(Err(Failure::Transient))
    };
    let begin = Instant::now();
    let batch = Batch::new().deadline(SystemTime::now() + Duration::from_secs(60));
    let response = batch.process(vec![SqsMessage::default()], detached).await;
    assert_eq!(response.batch_item_failures.len(), 1);
    assert_eq!(begin.elapsed().as_secs(), 5, "the function is not frozen before its body has ended");
    assert_eq!(shop.store.get(&key("1")).await.unwrap().unwrap().state, State::Completed);
}

#[tokio::test(start_paused = true)]
async fn a_stream_reports_sequence_numbers_and_keeps_the_order_of_each_partition_key() {
    let record = |sequence: &str, partition: &str, data: &[u8]| {
        let mut record = KinesisEventRecord::default();
        record.kinesis.sequence_number = sequence.to_owned();
        record.kinesis.partition_key = partition.to_owned();
        record.kinesis.data.0 = data.to_vec();
        record
    };
    let records = vec![record("1", "a", b"ok"), record("2", "b", b"fail"), record("3", "b", b"ok")];
    let batch = Batch::new();
    let response = batch.process(records, |record| async move {
        if record.kinesis.data.0 == b"fail" { Err(Failure::Transient) } else { Ok(()) }
    });
    assert_eq!(failures(&response.await), ["2", "3"]);
}

/// Fifty changes of one item of a table with a partition and a sort key.
fn changes_of_one_item() -> Vec<EventRecord> {
    let keys = r#"{ "pk": { "S": "a" }, "sk": { "N": "1" } }"#;
    let record = |sequence: u32| {
        let mut record = EventRecord::default();
        record.change.sequence_number = Some(sequence.to_string());
        record.change.keys = serde_json::from_str(keys).unwrap();
        record
    };
    (0..50).map(record).collect()
}

#[tokio::test(start_paused = true)]
async fn changes_of_an_item_are_in_order_and_a_rejected_one_that_stops_its_shard_is_an_error_event() {
    let (events, _guard) = Events::start();
    let batch = Batch::new().dispose(|_: &Failure, _, _| Disposition::reject(Reason::Terminal));
    let response = batch.process(changes_of_one_item(), |_| async { Err::<(), _>(Failure::Final) });
    assert_eq!(failures(&response.await).len(), 50);
    // There is only one event, because the later changes of the item wait for the first change.
    assert_eq!(events.only("record_stops_shard")[0], "ERROR");
}
