//! The records of the event sources that take partial batch responses.

use aws_lambda_events::event::dynamodb::EventRecord as DynamoDbRecord;
use aws_lambda_events::event::kinesis::KinesisEventRecord;
use aws_lambda_events::event::sqs::SqsMessage;

use super::batch::BatchRecord;

impl BatchRecord for SqsMessage {
    fn identifier(&self) -> Option<&str> {
        self.message_id.as_deref()
    }

    /// The message group of a FIFO queue; messages of a standard queue have none.
    fn group(&self) -> Option<String> {
        self.attributes.get("MessageGroupId").cloned()
    }
}

impl BatchRecord for KinesisEventRecord {
    fn identifier(&self) -> Option<&str> {
        Some(&self.kinesis.sequence_number)
    }

    /// The partition key: that is what a shard keeps in order.
    fn group(&self) -> Option<String> {
        Some(self.kinesis.partition_key.clone())
    }
}

impl BatchRecord for DynamoDbRecord {
    fn identifier(&self) -> Option<&str> {
        self.change.sequence_number.as_deref()
    }

    /// The item's primary key: changes of one item are in order.
    fn group(&self) -> Option<String> {
        serde_json::to_string(&self.change.keys).ok()
    }
}
