//! Messages from JetStream, few at a time.
//!
//! The client's own endless stream asks for more before it is asked, so there is always something in its
//! buffer that was delivered, that nobody works at, and that is not given back when the worker ends.

use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};
use worker_demo::Failure;

use crate::{OrderMessage, Queue};

/// How many messages are asked for at once.
const AT_ONCE: usize = 5;

/// How long one question stands. A broker that was restarted has forgotten it; five seconds after that time
/// the client gives it up.
const EXPIRES: Duration = Duration::from_secs(2);

/// Takes messages from a consumer.
pub(crate) struct Taking<'q> {
    queue: &'q Queue,
    batch: Option<Batch>,
}

impl<'q> Taking<'q> {
    pub(crate) const fn new(queue: &'q Queue) -> Self {
        Self { queue, batch: None }
    }

    /// The messages, as they come. Nothing is asked for but when the stream is.
    pub(crate) fn messages(&mut self) -> BoxStream<'_, Result<OrderMessage, Failure>> {
        stream::unfold(self, |taking| async { Some((taking.next().await, taking)) }).boxed()
    }

    async fn next(&mut self) -> Result<OrderMessage, Failure> {
        loop {
            if let Some(batch) = &mut self.batch
                && let Some(message) = batch.next().await
            {
                return Ok(self.queue.delivery(message?));
            }
            self.batch = None;
            self.batch =
                Some(self.queue.consumer.batch().max_messages(AT_ONCE).expires(EXPIRES).messages().await?);
        }
    }

    /// Gives back what was delivered and not taken.
    pub(crate) async fn give_back(mut self) -> Result<(), Failure> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let mut left = Vec::new();
        while let Some(Some(Ok(message))) = batch.next().now_or_never() {
            left.push(message);
        }
        // First of all nothing more may come here.
        drop(batch);
        for message in left {
            message.ack_with(AckKind::Nak(None)).await?;
        }
        Ok(())
    }
}
