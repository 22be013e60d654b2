//! Batches of the streams, Kinesis and DynamoDB: the order of their records, and what stops a shard.

use aws_lambda_events::event::dynamodb::Event as DynamoDbEvent;
use aws_lambda_events::event::kinesis::KinesisEvent;
use idem::lambda::batch::Batch;
use idem::message::{Disposition, Reason};
use serde_json::{Value, json};

use super::failures;
use crate::events::Events;
use crate::message_support::Failure;

#[tokio::test(start_paused = true)]
async fn a_stream_reports_sequence_numbers_and_keeps_the_order_of_each_partition_key() {
    let record = |sequence: &str, partition: &str, data: &str| {
        json!({
            "kinesis": {
                "kinesisSchemaVersion": "1.0", "partitionKey": partition, "sequenceNumber": sequence,
                "data": data, "approximateArrivalTimestamp": 1_545_084_650.987
            },
            "eventSource": "aws:kinesis", "eventVersion": "1.0",
            "eventID": format!("shardId-000000000006:{sequence}"), "eventName": "aws:kinesis:record",
            "invokeIdentityArn": "arn:aws:iam::123456789012:role/lambda-role", "awsRegion": "us-east-2",
            "eventSourceARN": "arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream"
        })
    };
    // "fail" and "ok" in base64.
    let records = [record("1", "a", "b2s="), record("2", "b", "ZmFpbA=="), record("3", "b", "b2s=")];
    let event: KinesisEvent = serde_json::from_value(json!({ "Records": records })).unwrap();
    let batch = Batch::new();
    let response = batch.process(event.records, |record| async move {
        if record.kinesis.data.0 == b"fail" { Err(Failure::Transient) } else { Ok(()) }
    });
    assert_eq!(failures(&response.await), ["2", "3"]);
}

/// Fifty changes of one item of a table with a partition and a sort key.
fn changes_of_one_item() -> Vec<aws_lambda_events::event::dynamodb::EventRecord> {
    let record = |sequence: u32| {
        json!({
            "eventID": sequence.to_string(), "eventName": "MODIFY", "eventVersion": "1.0",
            "eventSource": "aws:dynamodb", "awsRegion": "us-east-2",
            "dynamodb": {
                "Keys": { "pk": { "S": "a" }, "sk": { "N": "1" } }, "SequenceNumber": sequence.to_string(),
                "SizeBytes": 26, "StreamViewType": "KEYS_ONLY",
                "ApproximateCreationDateTime": 1_545_084_650
            }
        })
    };
    let records: Vec<Value> = (0..50).map(record).collect();
    let event: DynamoDbEvent = serde_json::from_value(json!({ "Records": records })).unwrap();
    event.records
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
