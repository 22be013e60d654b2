//! The dead letters of a queue, and how their messages go back.

use std::collections::HashMap;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use idem_messages::{Redrive, StoredLetter, is_header_of_letter};

use crate::Error;
use crate::failed::failed;
use crate::received::copy;
use crate::taking::{LONGEST_BATCH, number, receive};

/// How long a request waits for letters, in seconds. With 0, SQS would query only some of its servers.
const WAIT: i32 = 1;

/// The receipts of the received letters, by their ids; `None` for a removed letter. SQS returns a letter
/// again after the queue's visibility timeout, with another receipt, and sometimes returns a removed letter.
#[derive(Default)]
struct Receipts(HashMap<String, Option<String>>);

impl Receipts {
    /// Adds the receipt of a letter. Returns whether the letter was received for the first time.
    fn add(&mut self, letter: &Message) -> bool {
        self.0.insert(id(letter), letter.receipt_handle.clone()).is_none()
    }

    /// Takes the newest receipt of a letter, with which the letter can be removed.
    fn take(&mut self, letter: &Message) -> Option<String> {
        self.0.insert(id(letter), None).flatten()
    }
}

/// Redrives the letters of a queue, and makes the remaining letters visible again.
pub(crate) async fn redrive(client: &Client, queue: &str, redrive: &mut Redrive) -> Result<(), Error> {
    let mut receipts = Receipts::default();
    let ended = redrive_each(client, queue, redrive, &mut receipts).await;
    for receipt in receipts.0.into_values().flatten() {
        let request = client.change_message_visibility().queue_url(queue);
        // If this fails, the letter is visible after the queue's visibility timeout.
        let _ = request.receipt_handle(receipt).visibility_timeout(0).send().await;
    }
    ended
}

async fn redrive_each(
    client: &Client,
    queue: &str,
    redrive: &mut Redrive,
    receipts: &mut Receipts,
) -> Result<(), Error> {
    // The number of letters at the start, by SQS's approximate count. The queue may have more letters, which
    // the next redrive gets.
    let mut unread = number(client, queue, QueueAttributeName::ApproximateNumberOfMessages).await?;
    while unread > 0 {
        let letters = receive(client.clone(), queue.to_owned(), LONGEST_BATCH, WAIT).await?;
        if letters.is_empty() {
            break;
        }
        for letter in letters {
            if receipts.add(&letter) && unread > 0 {
                unread -= 1;
                if redrive.sends(about(&letter), |origin| send(client, &letter, origin)).await? {
                    let request = client.delete_message().queue_url(queue);
                    let request = request.set_receipt_handle(receipts.take(&letter));
                    request.send().await.map_err(failed("remove a dead letter"))?;
                }
            }
        }
    }
    Ok(())
}

fn about(letter: &Message) -> StoredLetter {
    let header = |name: &str| letter.message_attributes.as_ref()?.get(name)?.string_value.clone();
    let mut about = StoredLetter::read(id(letter), header);
    // If SQS itself has moved the message, no header has its origin. But SQS then adds the ARN of the queue
    // that the message came from.
    let arn = || letter.attributes.as_ref()?.get(&MessageSystemAttributeName::DeadLetterQueueSourceArn);
    about.origin = about.origin.or_else(|| arn()?.rsplit(':').next().map(str::to_owned));
    about
}

async fn send(client: &Client, letter: &Message, origin: String) -> Result<(), Error> {
    let queue = client.get_queue_url().queue_name(origin).send().await;
    let queue = queue.map_err(failed("find the queue that a message was sent to"))?;
    let mut attributes = letter.message_attributes.clone().unwrap_or_default();
    attributes.retain(|name, _| !is_header_of_letter(name));
    // This redrive may die before it removes the letter, and then the next redrive sends the message again.
    // If that happens within five minutes, a FIFO queue drops the second message, because both have this id.
    let redrive = Some(format!("redrive-{}", id(letter)));
    let message = copy(client, queue.queue_url().unwrap_or_default(), letter, redrive);
    let sent = message.set_message_attributes(Some(attributes)).send().await;
    sent.map(drop).map_err(failed("send the message back"))
}

fn id(letter: &Message) -> String {
    letter.message_id.clone().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_that_comes_again_is_read_once_and_removed_by_its_newest_receipt() {
        let mut receipts = Receipts::default();
        let letter = |receipt: &str| Message::builder().message_id("1").receipt_handle(receipt).build();
        assert!(receipts.add(&letter("a")));
        assert!(!receipts.add(&letter("b")));
        assert_eq!(receipts.take(&letter("a")).as_deref(), Some("b"));
        assert!(!receipts.add(&letter("c")), "it was sent back, and must not be sent again");
    }
}
