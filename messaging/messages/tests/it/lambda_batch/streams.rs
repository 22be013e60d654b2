//! Batches of the streams, Kinesis and DynamoDB: the order of their records, and what stops a shard.

use aws_lambda_events::event::dynamodb::EventRecord;
use aws_lambda_events::event::kinesis::KinesisEventRecord;
use idem::lambda::batch::Batch;
use idem::message::{Disposition, Reason};

use super::failures;
use crate::events::Events;
use crate::message_support::Failure;

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
    // Only one: the others, whose keys are the same, wait for the first.
    assert_eq!(events.only("record_stops_shard")[0], "ERROR");
}
