//! The dead letters of a queue, and how their messages go back.

use std::collections::{HashMap, VecDeque};

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use idem_messages::{DeadLetters, StoredLetter, is_header_of_letter};

use crate::Error;
use crate::failed::failed;
use crate::received::{DELIVERIES, copy};
use crate::taking::{LONGEST_BATCH, number, receive};

/// How long a request waits for letters, in seconds, so that SQS asks all of its servers.
const WAIT: i32 = 1;

/// The dead letters of a queue.
pub struct Letters {
    client: Client,
    queue: String,
    /// How many there were at the start, by SQS's count, and were not read. SQS may have more, and gives
    /// those to the next reader.
    unread: u64,
    /// Those that were received and not read.
    there: VecDeque<Message>,
    /// The receipts of those that were received, by their ids, and nothing for those that were removed. SQS gives a letter again after
    /// the queue's visibility timeout, with another receipt, and sometimes one that was removed.
    receipts: HashMap<String, Option<String>>,
}

impl Letters {
    pub(crate) async fn open(client: Client, queue: String) -> Result<Self, Error> {
        let unread = number(&client, &queue, QueueAttributeName::ApproximateNumberOfMessages).await?;
        Ok(Self { client, queue, unread, there: VecDeque::new(), receipts: HashMap::new() })
    }

    /// Takes in letters that SQS gave, each once.
    fn receive(&mut self, letters: Vec<Message>) {
        for letter in letters {
            if self.receipts.insert(id(&letter), letter.receipt_handle.clone()).is_none() {
                self.there.push_back(letter);
            }
        }
    }

    /// The receipt to remove a letter with.
    fn receipt_to_remove(&mut self, letter: &Message) -> Option<String> {
        self.receipts.insert(id(letter), None).flatten()
    }
}

impl DeadLetters for Letters {
    type Letter = Message;

    async fn next(&mut self) -> Result<Option<Message>, Error> {
        let Some(unread) = self.unread.checked_sub(1) else { return Ok(None) };
        self.unread = unread;
        while self.there.is_empty() {
            let (client, queue) = (self.client.clone(), self.queue.clone());
            let received = receive(client, queue, LONGEST_BATCH, WAIT).await?;
            if received.is_empty() {
                return Ok(None);
            }
            self.receive(received);
        }
        Ok(self.there.pop_front())
    }

    fn about(&self, letter: &Message) -> StoredLetter {
        let header = |name: &str| letter.message_attributes.as_ref()?.get(name)?.string_value.clone();
        let mut about = StoredLetter::read(id(letter), header);
        // A message that SQS itself has moved has the ARN of its queue instead.
        let arn = || letter.attributes.as_ref()?.get(&MessageSystemAttributeName::DeadLetterQueueSourceArn);
        about.origin = about.origin.or_else(|| arn()?.rsplit(':').next().map(str::to_owned));
        about
    }

    async fn send(&self, letter: &Message, origin: &str) -> Result<(), Error> {
        let queue = self.client.get_queue_url().queue_name(origin).send().await;
        let queue = queue.map_err(failed("find the queue that a message was sent to"))?;
        let mut attributes = letter.message_attributes.clone().unwrap_or_default();
        attributes.retain(|name, _| name != DELIVERIES && !is_header_of_letter(name));
        // The same each time: this redrive may die before it removes the letter.
        let redrive = Some(format!("redrive-{}", id(letter)));
        let message = copy(&self.client, queue.queue_url().unwrap_or_default(), letter, redrive);
        let sent = message.set_message_attributes(Some(attributes)).send().await;
        sent.map(drop).map_err(failed("send the message back"))
    }

    async fn remove(&mut self, letter: Message) -> Result<(), Error> {
        let request = self.client.delete_message().queue_url(&self.queue);
        let request = request.set_receipt_handle(self.receipt_to_remove(&letter));
        request.send().await.map(drop).map_err(failed("remove a dead letter"))
    }

    async fn close(self) -> Result<(), Error> {
        for receipt in self.receipts.into_values().flatten() {
            let request = self.client.change_message_visibility().queue_url(&self.queue);
            // If this fails, the letter is visible after the queue's visibility timeout.
            let _ = request.receipt_handle(receipt).visibility_timeout(0).send().await;
        }
        Ok(())
    }
}

fn id(letter: &Message) -> String {
    letter.message_id.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use aws_sdk_sqs::{Client, Config};

    use super::*;

    #[test]
    fn a_letter_that_comes_again_is_read_once_and_removed_by_its_newest_receipt() {
        let client = Client::from_conf(Config::builder().behavior_version_latest().build());
        let (queue, there, receipts) = ("dead".to_owned(), VecDeque::new(), HashMap::new());
        let mut letters = Letters { client, queue, unread: 2, there, receipts };
        let letter = |receipt: &str| Message::builder().message_id("1").receipt_handle(receipt).build();
        letters.receive(vec![letter("a")]);
        let first = letters.there.pop_front().unwrap();
        letters.receive(vec![letter("b")]);
        assert_eq!(letters.receipt_to_remove(&first).as_deref(), Some("b"));
        letters.receive(vec![letter("c")]);
        assert!(letters.there.is_empty(), "it was sent back, and must not be sent again");
    }
}
