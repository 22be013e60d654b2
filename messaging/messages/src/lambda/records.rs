//! The records of the event sources that accept partial batch responses.

use aws_lambda_events::event::dynamodb::EventRecord as DynamoDbRecord;
use aws_lambda_events::event::kinesis::KinesisEventRecord;
use aws_lambda_events::event::sqs::SqsMessage;

use super::batch::BatchRecord;

impl BatchRecord for SqsMessage {
    fn identifier(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The message group of a FIFO queue. On a standard queue, a message group is a tenant of a fair queue,
    /// and the messages of a tenant have no order.
    fn group(&self) -> Option<String> {
        let is_fifo = self.attributes.contains_key("SequenceNumber")
            || self.event_source_arn.as_ref().is_some_and(|queue| queue.ends_with(".fifo"));
        self.attributes.get("MessageGroupId").filter(|_| is_fifo).cloned()
    }

    fn deliveries(&self) -> Option<u32> {
        self.attributes.get("ApproximateReceiveCount")?.parse().ok()
    }
}

impl BatchRecord for KinesisEventRecord {
    const BLOCKS_ITS_SOURCE: bool = true;

    fn identifier(&self) -> Option<&str> {
        Some(&self.kinesis.sequence_number)
    }

    /// The partition key, because a shard keeps the records of one partition key in order.
    fn group(&self) -> Option<String> {
        Some(self.kinesis.partition_key.clone())
    }
}

impl BatchRecord for DynamoDbRecord {
    const BLOCKS_ITS_SOURCE: bool = true;

    fn identifier(&self) -> Option<&str> {
        self.change.sequence_number.as_deref()
    }

    /// The item's primary key, because the changes of one item are in order.
    fn group(&self) -> Option<String> {
        // The group is canonical JSON, because each record may have the attributes of a key in another order.
        serde_json_canonicalizer::to_string(&self.change.keys).ok()
    }
}
