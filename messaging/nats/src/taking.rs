//! Messages from JetStream, a batch at a time.
//!
//! This module does not use the client's own endless stream, because that stream requests messages ahead of
//! need. Its buffer would hold delivered messages that nobody handles, and would not give them back when the
//! worker ends.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::{FutureExt as _, StreamExt as _};
use idem_messages::{Delivery as _, Reader, Room};

use crate::Error;
use crate::received::{Received, Shared};

/// How long one request stays open; less if the consumer's `max_expires` is shorter. This time is short,
/// because a server that restarts forgets the request, and the client gives up the request only five seconds
/// after this time.
const EXPIRES: Duration = Duration::from_secs(2);

/// Reads messages from a consumer.
pub struct Taking {
    pub(crate) consumer: PullConsumer,
    pub(crate) shared: Arc<Shared>,
    pub(crate) batch: Option<Batch>,
}

impl Reader for Taking {
    type Message = Received;

    async fn next(&mut self, room: &Room) -> Result<Received, Error> {
        loop {
            if let Some(batch) = &mut self.batch
                && let Some(message) = batch.next().await
            {
                let message = message.map_err(Error::at("receive a message"))?;
                return Ok(Received::new(message, self.shared.clone()));
            }
            self.batch = None;
            let limits = &self.consumer.cached_info().config;
            let largest_batch = usize::try_from(limits.max_batch)
                .ok()
                .filter(|largest_batch| *largest_batch > 0)
                .unwrap_or(usize::MAX);
            let expires = Some(limits.max_expires).filter(|longest| !longest.is_zero()).unwrap_or(EXPIRES);
            let free = room.free().await.min(largest_batch);
            let request = self.consumer.batch().max_messages(free).expires(expires.min(EXPIRES));
            self.batch = Some(request.messages().await.map_err(Error::at("request messages"))?);
        }
    }

    async fn stop(&mut self) -> Result<(), Error> {
        let (mut unread, mut result) = (Vec::new(), Ok(()));
        if let Some(mut batch) = self.batch.take() {
            while let Some(Some(Ok(message))) = batch.next().now_or_never() {
                unread.push(Received::new(message, self.shared.clone()));
            }
            // Ends the request before the messages are given back, so that no more messages arrive here.
            drop(batch);
        }
        for message in unread {
            result = message.give_back().await.and(result);
        }
        result
    }

    async fn close(self) -> Result<(), Error> {
        self.shared.jetstream.client().flush().await.map_err(Error::at("flush the connection"))
    }
}
