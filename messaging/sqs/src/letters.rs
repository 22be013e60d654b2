//! The dead letters of a queue, and how their messages go back.

use std::collections::{HashSet, VecDeque};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};

use crate::Error;
use crate::failed::failed;
use crate::received::{DELIVERIES, group_id, is_fifo};

/// The most messages that SQS gives in an answer.
const BATCH: i32 = 10;

/// How long a request waits for letters, in seconds, so that SQS asks all of its servers.
const WAIT: i32 = 1;

/// The dead letters of a queue.
pub struct Letters {
    client: Client,
    queue: String,
    /// How many there were at the start, by SQS's count, and were not read.
    count: usize,
    unread: VecDeque<Message>,
    /// The ids of those that were read: SQS gives a letter again after the queue's visibility timeout.
    seen: HashSet<String>,
    kept: Vec<Message>,
}

impl Letters {
    pub(crate) async fn open(client: Client, queue: String) -> Result<Self, Error> {
        let doing = "count the dead letters";
        let attribute = QueueAttributeName::ApproximateNumberOfMessages;
        let request = client.get_queue_attributes().queue_url(&queue).attribute_names(attribute.clone());
        let response = request.send().await.map_err(failed(doing))?;
        let text = response.attributes().and_then(|attributes| attributes.get(&attribute)?.parse().ok());
        let count = text.ok_or_else(|| Error::new(doing, "SQS did not return their number"))?;
        let (unread, seen, kept) = Default::default();
        Ok(Self { client, queue, count, unread, seen, kept })
    }

    /// The next letter that was not read. SQS may have more than it counted, and gives those to the next reader.
    async fn letter(&mut self) -> Result<Option<Message>, Error> {
        while self.count > 0 {
            if self.unread.is_empty() {
                let request = self.client.receive_message().queue_url(&self.queue);
                let request = request
                    .max_number_of_messages(BATCH)
                    .wait_time_seconds(WAIT)
                    .message_attribute_names("All")
                    .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId)
                    .message_system_attribute_names(MessageSystemAttributeName::DeadLetterQueueSourceArn);
                let response = request.send().await.map_err(failed("receive dead letters"))?;
                self.unread.extend(response.messages.unwrap_or_default());
            }
            let Some(letter) = self.unread.pop_front() else { return Ok(None) };
            if self.seen.insert(letter.message_id.clone().unwrap_or_default()) {
                self.count -= 1;
                return Ok(Some(letter));
            }
            self.kept.push(letter);
        }
        Ok(None)
    }
}

impl DeadLetters for Letters {
    type Letter = Message;

    async fn next(&mut self) -> Result<Option<(StoredLetter, Message)>, Error> {
        let Some(letter) = self.letter().await? else { return Ok(None) };
        let header = |name: &str| letter.message_attributes.as_ref()?.get(name)?.string_value.clone();
        let mut about = StoredLetter::read(letter.message_id.clone().unwrap_or_default(), header);
        if about.origin.is_none() {
            // A message that SQS itself has moved.
            let arn = letter.attributes.as_ref();
            let arn = arn.and_then(|known| known.get(&MessageSystemAttributeName::DeadLetterQueueSourceArn));
            about.origin = arn.and_then(|arn| arn.rsplit(':').next()).map(str::to_owned);
        }
        Ok(Some((about, letter)))
    }

    async fn send(&mut self, letter: &Message, origin: &str) -> Result<(), Error> {
        let queue = self.client.get_queue_url().queue_name(origin).send().await;
        let queue = queue.map_err(failed("find the queue that a message was sent to"))?;
        let mut attributes = letter.message_attributes.clone().unwrap_or_default();
        attributes.retain(|name, _| name != DELIVERIES && !is_header_of_letter(name));
        let mut message = self.client.send_message().set_queue_url(queue.queue_url);
        message = message.set_message_body(letter.body.clone()).set_message_attributes(Some(attributes));
        if is_fifo(origin) {
            // The queue drops a second message with this id: this redrive may die before it removes the letter.
            let id = letter.message_id.as_ref().map(|id| format!("redrive-{id}"));
            message = message.set_message_group_id(group_id(letter)).set_message_deduplication_id(id);
        }
        message.send().await.map(drop).map_err(failed("send the message back"))
    }

    async fn remove(&mut self, letter: Message) -> Result<(), Error> {
        let request = self.client.delete_message().queue_url(&self.queue);
        let request = request.set_receipt_handle(letter.receipt_handle);
        request.send().await.map(drop).map_err(failed("remove a dead letter"))
    }

    fn keep(&mut self, letter: Message) {
        self.kept.push(letter);
    }

    async fn close(self) -> Result<(), Error> {
        for letter in self.kept.into_iter().chain(self.unread) {
            let request = self.client.change_message_visibility().queue_url(&self.queue);
            let request = request.set_receipt_handle(letter.receipt_handle).visibility_timeout(0);
            // If this fails, the letter is visible after the queue's visibility timeout.
            let _ = request.send().await;
        }
        Ok(())
    }
}
