//! Messages from SQS, a request at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use idem_messages::{Delivery as _, Reader, Room};

use crate::Error;
use crate::failed::failed;
use crate::received::{Received, Shared};

/// The most messages that SQS gives in an answer.
const LONGEST_BATCH: usize = 10;

/// Reads messages from a queue.
pub struct Taking {
    shared: Arc<Shared>,
    room: Room,
    wait: i32,
    /// Messages that were received and not read.
    there: VecDeque<Received>,
    /// The request in flight. It outlives the stream, because SQS hides its messages from other workers.
    request: Option<BoxFuture<'static, Result<Vec<Message>, Error>>>,
}

impl Taking {
    pub(crate) fn new(shared: Arc<Shared>, room: Room, wait: Duration) -> Self {
        let wait = i32::try_from(wait.as_secs()).unwrap_or(0);
        Self { shared, room, wait, there: VecDeque::new(), request: None }
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

    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            if let Some(received) = self.there.pop_front() {
                return Ok(received);
            }
            if self.request.is_none() {
                let free = self.room.free().await.min(LONGEST_BATCH);
                let free = i32::try_from(free).unwrap_or(1);
                self.request = Some(receive(self.shared.clone(), free, self.wait).boxed());
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

async fn receive(shared: Arc<Shared>, messages: i32, wait: i32) -> Result<Vec<Message>, Error> {
    let request = shared.client.receive_message().queue_url(&shared.queue);
    let request = request
        .max_number_of_messages(messages)
        .wait_time_seconds(wait)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
        .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId);
    let response = request.send().await.map_err(failed("receive messages"))?;
    Ok(response.messages.unwrap_or_default())
}
