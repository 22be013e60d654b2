//! A consumer whose messages are delivered several times.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt::Display;
use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use idem_messages::{Consumer, DeadLetter, Delivery};

use super::Twice;
use super::repetition::{Answer, AnswerKind};

/// What the consumer tells the broker of a message.
enum Settlement {
    Acknowledged,
    Retry(Duration),
    Rejected(DeadLetter),
}

impl Answer for Settlement {
    const SUBJECT: &'static str = "message";

    fn kind(&self) -> AnswerKind {
        if matches!(self, Self::Retry(_)) { AnswerKind::Retryable } else { AnswerKind::Final }
    }

    fn difference(&self, other: &Self) -> Option<String> {
        let word = |settlement: &Self| match settlement {
            Self::Rejected(letter) => format!("rejected ({})", letter.reason.as_str()),
            _ => "acknowledged".to_owned(),
        };
        let (first, second) = (word(self), word(other));
        (first != second).then(|| format!("{first} and then {second}"))
    }
}

/// A delivery of a message, of whose settlement the broker hears nothing.
struct Redelivery<'m, M>(&'m M, &'m Cell<Settlement>);

impl<M: Delivery> Delivery for Redelivery<'_, M> {
    type Error = Infallible;

    async fn acknowledge(&self) -> Result<(), Infallible> {
        self.1.set(Settlement::Acknowledged);
        Ok(())
    }

    async fn retry(&self, after: Duration) -> Result<(), Infallible> {
        self.1.set(Settlement::Retry(after));
        Ok(())
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), Infallible> {
        self.1.set(Settlement::Rejected(letter.clone()));
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
    /// Delivers each message of a stream several times, one message after the other, and then settles it once, as
    /// [`Consumer::run`] would: see [`Twice`]. Two deliveries at the same time are to two workers, which die as soon as their
    /// handlers wait; the last comes after the acknowledgement was lost.
    ///
    /// # Panics
    ///
    /// If the handler did something twice, if a delivery is acknowledged and another rejected, or if the message cannot be settled.
    pub async fn run<M, X, F, T>(self, messages: impl Stream<Item = Result<M, X>>, handler: impl Fn(&M) -> F)
    where
        M: Delivery,
        X: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut messages = pin!(messages);
        while let Some(message) = messages.next().await {
            let message = message.unwrap_or_else(|error| panic!("the stream failed: {error}"));
            let once = || async {
                let settlement = Cell::new(Settlement::Retry(Duration::ZERO));
                let copy = Redelivery(&message, &settlement);
                let handler = |copy: &Redelivery<'_, _>| handler(copy.0);
                self.inner.clone().run(stream::iter([Ok::<_, Infallible>(copy)]), handler).await;
                Ok::<_, Infallible>(settlement.into_inner())
            };
            let Ok(settlement) = self.repeat(None, once).await;
            let settled = match settlement {
                Settlement::Acknowledged => message.acknowledge().await,
                Settlement::Retry(after) => message.retry(after).await,
                Settlement::Rejected(letter) => message.reject(&letter).await,
            };
            settled.unwrap_or_else(|error| panic!("a message cannot be settled: {error}"));
        }
    }
}
