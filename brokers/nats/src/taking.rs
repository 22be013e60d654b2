//! Messages from JetStream, a batch at a time.
//!
//! The client's own endless stream requests messages ahead of need. Its buffer would hold delivered messages that nobody handles,
//! and that are not given back when the worker ends.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::consumer::PullConsumer;
use async_nats::jetstream::consumer::pull::Batch;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt as _, StreamExt as _};

use crate::Error;
use crate::received::{Received, Shared};

/// How long one request stays open. A restarted server has forgotten the request; the client gives it up five seconds
/// after this time.
const EXPIRES: Duration = Duration::from_secs(2);

/// Takes messages from a consumer.
pub(crate) struct Taking {
    consumer: PullConsumer,
    shared: Arc<Shared>,
    at_once: usize,
    batch: Option<Batch>,
}

impl Taking {
    pub(crate) fn new(consumer: PullConsumer, shared: Arc<Shared>, at_once: usize) -> Self {
        let most = usize::try_from(consumer.cached_info().config.max_batch).ok().filter(|most| *most > 0);
        let at_once = at_once.clamp(1, most.unwrap_or(usize::MAX));
        Self { consumer, shared, at_once, batch: None }
    }

    /// The messages as they arrive. Nothing is requested before the stream is polled.
    pub(crate) fn messages(&mut self) -> BoxStream<'_, Result<Received, Error>> {
        stream::unfold(self, |taking| async { Some((taking.next().await, taking)) }).boxed()
    }

    async fn next(&mut self) -> Result<Received, Error> {
        loop {
            if let Some(batch) = &mut self.batch
                && let Some(message) = batch.next().await
            {
                let message = message.map_err(Error::at("receive a message"))?;
                return Ok(Received::new(message, self.shared.clone()));
            }
            self.batch = None;
            let request = self.consumer.batch().max_messages(self.at_once).expires(self.expires());
            self.batch = Some(request.messages().await.map_err(Error::at("request messages"))?);
        }
    }

    /// `EXPIRES`, or less where the consumer's `max_expires` is shorter.
    fn expires(&self) -> Duration {
        match self.consumer.cached_info().config.max_expires {
            Duration::ZERO => EXPIRES,
            longest => longest.min(EXPIRES),
        }
    }

    /// Gives back the messages that were delivered and not taken from the stream.
    pub(crate) async fn give_back(mut self) -> Result<(), Error> {
        let Some(mut batch) = self.batch.take() else { return Ok(()) };
        let mut left = Vec::new();
        while let Some(Some(Ok(message))) = batch.next().now_or_never() {
            left.push(message);
        }
        // Ends the request first, so that no more messages arrive here.
        drop(batch);
        for message in left {
            let told = message.ack_with(AckKind::Nak(None)).await;
            told.map_err(Error::at("give back a message that was not begun"))?;
        }
        Ok(())
    }
}
