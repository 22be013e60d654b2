//! The reader of a queue, and the requests that read messages and attributes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName, QueueAttributeName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use idem_messages::{Delivery as _, Reader, Room};

use crate::Error;
use crate::failed::failed;
use crate::received::{Received, Shared};

/// The largest number of messages that SQS returns for one request.
pub(crate) const LONGEST_BATCH: usize = 10;

/// Reads messages from a queue.
pub struct Taking {
    shared: Arc<Shared>,
    wait: i32,
    /// Messages that were received but not read yet.
    there: VecDeque<Received>,
    /// The request in flight. It stays here if the future of `next` is dropped, because SQS hides the
    /// messages of the request from other workers.
    request: Option<BoxFuture<'static, Result<Vec<Message>, Error>>>,
}

impl Taking {
    pub(crate) fn new(shared: Arc<Shared>, wait: Duration) -> Self {
        let wait = i32::try_from(wait.as_secs()).unwrap_or(0);
        Self { shared, wait, there: VecDeque::new(), request: None }
    }

    /// Waits for the request in flight.
    async fn answered(&mut self) -> Result<(), Error> {
        let Some(request) = &mut self.request else { return Ok(()) };
        let answer = request.await;
        self.request = None;
        self.there.extend(answer?.into_iter().map(|message| Received::new(message, self.shared.clone())));
        Ok(())
    }
}

impl Reader for Taking {
    type Message = Received;

    async fn next(&mut self, room: &Room) -> Result<Received, Error> {
        loop {
            if let Some(received) = self.there.pop_front() {
                return Ok(received);
            }
            if self.request.is_none() {
                let free = room.free().await.min(LONGEST_BATCH);
                let (client, queue) = (self.shared.client.clone(), self.shared.queue.clone());
                self.request = Some(receive(client, queue, free, self.wait).boxed());
            }
            self.answered().await?;
        }
    }

    async fn stop(&mut self) -> Result<(), Error> {
        let mut result = self.answered().await;
        for received in self.there.drain(..) {
            result = received.give_back().await.and(result);
        }
        result
    }

    async fn close(self) -> Result<(), Error> {
        Ok(())
    }
}

/// Receives at most this many messages. Waits at most `wait` seconds for the first message.
pub(crate) async fn receive(
    client: Client,
    queue: String,
    messages: usize,
    wait: i32,
) -> Result<Vec<Message>, Error> {
    let request = client.receive_message().queue_url(queue);
    let request = request
        .max_number_of_messages(i32::try_from(messages).unwrap_or(1))
        .wait_time_seconds(wait)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
        .message_system_attribute_names(MessageSystemAttributeName::DeadLetterQueueSourceArn)
        .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId);
    let response = request.send().await.map_err(failed("receive messages"))?;
    Ok(response.messages.unwrap_or_default())
}

/// A queue's attribute that is a number.
pub(crate) async fn number(client: &Client, queue: &str, name: QueueAttributeName) -> Result<u64, Error> {
    let doing = "read the queue's attributes";
    let request = client.get_queue_attributes().queue_url(queue).attribute_names(name.clone());
    let response = request.send().await.map_err(failed(doing))?;
    let number = response.attributes().and_then(|attributes| attributes.get(&name)?.parse().ok());
    number.ok_or_else(|| Error::new(doing, format!("SQS did not return {name}")))
}
