//! A consumer whose messages are delivered several times.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use idem_messages::{Consumer, DeadLetter, Delivery};

use super::Twice;

/// How the consumer settles a message with the broker: `Ok` with words if it acknowledges or rejects the
/// message, `Err` with the delay if it retries the message.
type Settlement = Result<String, Duration>;

/// One delivery of the message, with its settlement and its dead letter. Both are only noted here and do not
/// reach the broker.
struct Redelivery<'m, M>(&'m M, &'m Cell<Settlement>, &'m Cell<Option<DeadLetter>>);

impl<M: Delivery> Delivery for Redelivery<'_, M> {
    type Error = Infallible;

    async fn acknowledge(&self) -> Result<(), Infallible> {
        self.1.set(Ok("acknowledged".to_owned()));
        Ok(())
    }

    async fn retry(&self, after: Duration) -> Result<(), Infallible> {
        self.1.set(Err(after));
        Ok(())
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Infallible> {
        self.1.set(Ok(format!("rejected ({})", letter.reason.as_str())));
        self.2.set(Some(letter.clone()));
        Ok(())
    }

    async fn give_back(&self) -> Result<(), Infallible> {
        self.retry(Duration::ZERO).await
    }

    fn retries_in_place(&self) -> bool {
        self.0.retries_in_place()
    }

    fn is_last_delivery(&self) -> bool {
        self.0.is_last_delivery()
    }

    fn deliveries(&self) -> Option<u32> {
        self.0.deliveries()
    }

    fn group(&self) -> Option<String> {
        self.0.group()
    }
}

impl<E: Display> Twice<Consumer<E>> {
    /// Delivers each message of a stream several times, one message after the other, and then settles it
    /// once, as [`Consumer::run`] would: see [`Twice`]. Two workers get a delivery at the same time, and die
    /// as soon as their handlers wait. Each further pair of workers dies one wait later. The last delivery
    /// comes as if the acknowledgement had been lost.
    ///
    /// # Panics
    ///
    /// - if the stream fails, or a message cannot be settled
    /// - if the handler did something twice
    /// - if one delivery is acknowledged and another is rejected
    /// - if nothing was checked
    pub async fn run<M, X, F, T>(self, messages: impl Stream<Item = Result<M, X>>, handler: impl Fn(&M) -> F)
    where
        M: Delivery,
        X: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut messages = pin!(messages);
        while let Some(message) = messages.next().await {
            let message = message.unwrap_or_else(|error| panic!("the stream failed: {error}"));
            let letter = Cell::new(None);
            let once = || async {
                let settlement = Cell::new(Err(Duration::ZERO));
                let copy = Redelivery(&message, &settlement, &letter);
                let handler = |copy: &Redelivery<'_, _>| handler(copy.0);
                self.inner.clone().run(stream::iter([Ok::<_, Infallible>(copy)]), handler).await;
                Ok::<_, Infallible>(settlement.into_inner())
            };
            let Ok(settlement) = self.repeat("message", None, once).await;
            let settled = match (settlement, letter.take()) {
                (Err(after), _) => message.retry(after).await,
                (Ok(word), Some(letter)) if word != "acknowledged" => message.reject(&letter).await,
                (Ok(_), _) => message.acknowledge().await,
            };
            settled.unwrap_or_else(|error| panic!("a message cannot be settled: {error}"));
        }
    }
}
