//! Messages from SQS, a request at a time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use idem_runtime::message::Delivery as _;

use crate::Error;
use crate::failed::failed;
use crate::received::{Received, Shared};

pub(crate) struct Taking {
    shared: Arc<Shared>,
    at_once: i32,
    wait: i32,
    /// Messages that were received and not begun.
    there: VecDeque<Received>,
    /// The request in flight. It outlives the stream, because SQS hides its messages from other workers.
    request: Option<BoxFuture<'static, Result<Vec<Message>, Error>>>,
}

impl Taking {
    pub(crate) fn new(shared: Arc<Shared>, at_once: usize, wait: Duration) -> Self {
        let at_once = i32::try_from(at_once).unwrap_or(1);
        let wait = i32::try_from(wait.as_secs()).unwrap_or(0);
        Self { shared, at_once, wait, there: VecDeque::new(), request: None }
    }

    /// The messages as they arrive. Nothing is requested before the stream is polled.
    pub(crate) fn messages(&mut self) -> BoxStream<'_, Result<Received, Error>> {
        stream::unfold(self, |taking| async { Some((taking.next().await, taking)) }).boxed()
    }

    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            if let Some(received) = self.there.pop_front() {
                return Ok(received);
            }
            if self.request.is_none() {
                self.request = Some(receive(self.shared.clone(), self.at_once, self.wait).boxed());
            }
            self.answered().await?;
        }
    }

    /// Waits for the request in flight.
    async fn answered(&mut self) -> Result<(), Error> {
        let Some(request) = &mut self.request else { return Ok(()) };
        let answer = request.await;
        self.request = None;
        self.there.extend(answer?.into_iter().map(|message| Received::new(message, self.shared.clone())));
        Ok(())
    }

    /// Gives back the messages that were delivered and not taken from the stream.
    pub(crate) async fn give_back(mut self) -> Result<(), Error> {
        self.answered().await?;
        for received in self.there {
            received.give_back().await?;
        }
        Ok(())
    }
}

async fn receive(shared: Arc<Shared>, at_once: i32, wait: i32) -> Result<Vec<Message>, Error> {
    let asked = shared.client.receive_message().queue_url(&shared.queue);
    let asked = asked
        .max_number_of_messages(at_once)
        .wait_time_seconds(wait)
        .message_attribute_names("All")
        .message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount)
        .message_system_attribute_names(MessageSystemAttributeName::MessageGroupId);
    let told = asked.send().await.map_err(failed("receive messages"))?;
    Ok(told.messages.unwrap_or_default())
}
