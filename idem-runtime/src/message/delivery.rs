//! The glue to a broker: how a message is settled with it, and what a stream of them gives.

use std::convert::Infallible;
use std::fmt;
use std::future::ready;
use std::time::Duration;

use super::Reason;

/// A message as the broker delivered it, and how it is settled with the broker.
///
/// The glue between a broker's client and [`run`](super::run). Of the four methods that take `self`, one
/// is called, once, for each message, when all is over that is done for it. An error is counted and
/// reported as an event, with its text: let that hold no password. The message is then the broker's to deliver
/// again, and gets its recorded result.
///
/// ```
/// # use idem_runtime as idem;
/// use std::convert::Infallible;
/// use std::time::Duration;
/// use idem::message::{Delivery, Reason};
///
/// struct Message {
///     body: String,
/// }
///
/// impl Delivery for Message {
///     type Error = Infallible;
///
///     async fn acknowledge(self) -> Result<(), Infallible> {
///         // The client's `ack`.
///         Ok(())
///     }
///
///     async fn retry(self, after: Duration) -> Result<(), Infallible> {
///         // Its `nack` with a delay, or a copy to a queue of delayed messages and an `ack`.
///         Ok(())
///     }
///
///     async fn reject(self, reason: Reason) -> Result<(), Infallible> {
///         // A copy to the dead letters, with `reason.as_str()` in a header, and an `ack`.
///         Ok(())
///     }
///
///     async fn give_back(self) -> Result<(), Infallible> {
///         // Its `nack`, without a delay.
///         Ok(())
///     }
/// }
/// ```
pub trait Delivery {
    /// Why the broker could not be told. Its text goes into an event.
    type Error: fmt::Display;

    /// It is done with.
    fn acknowledge(self) -> impl Future<Output = Result<(), Self::Error>>;

    /// To be delivered again, not sooner than `after` from now. Not called for messages that are in an
    /// order: see [`group`](Self::group).
    fn retry(self, after: Duration) -> impl Future<Output = Result<(), Self::Error>>;

    /// To be set aside. It is best acknowledged only after the dead letter is written.
    fn reject(self, reason: Reason) -> impl Future<Output = Result<(), Self::Error>>;

    /// Nothing was done for it, or not to the end, as the consumer is shut down: to be delivered again at
    /// once, to whoever is there.
    fn give_back(self) -> impl Future<Output = Result<(), Self::Error>>;

    /// It is still being worked at: called every [`extend_every`](super::Consumer::extend_every) from its
    /// arrival to its end, for brokers that deliver a message again that was silent for too long.
    fn extend(&self) -> impl Future<Output = Result<(), Self::Error>> {
        ready(Ok(()))
    }

    /// Why the handler failed at its last try: the text of its error, for a header of the dead letter. Called before
    /// [`retry`](Self::retry) and [`reject`](Self::reject), and does nothing unless it is overridden.
    ///
    /// The text is the program's own and may be private, so no event shows it; keep it out of yours. It is one line
    /// without control characters and ends with `...` where it was longer than 1,024 bytes. Of a panic there is no text
    /// but that it was one.
    fn failed(&mut self, error: &str) {
        let _ = error;
    }

    /// How often the broker has delivered the message, this time included, where it says so: `Some(1)` at the
    /// first. It lets [`max_tries`](super::Consumer::max_tries) end a message whose handler never comes to its
    /// idempotent call. `None`, unless it is overridden.
    fn deliveries(&self) -> Option<u32> {
        None
    }

    /// What to find the message by in the broker, for events: its id, offset or sequence number, and nothing
    /// private. `None`, unless it is overridden.
    fn id(&self) -> Option<String> {
        None
    }

    /// The broker, by the word of OpenTelemetry's `messaging.system`, for the span of the handler. `None`, unless it is overridden.
    fn system(&self) -> Option<&'static str> {
        None
    }

    /// Where the message was sent to, a queue or a topic, for the span of the handler: `messaging.destination.name`. `None`, unless
    /// it is overridden.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Messages of one group are done one after another, in the order they came. `None`, unless it is
    /// overridden, for one that is in no order.
    ///
    /// What is to be retried of a group is retried in its place, after its pause, and what came behind it
    /// waits; neither goes back to the broker, whose count of deliveries therefore does not rise. Give the
    /// operation `max_attempts`, or one message can hold up its group for ever. That the broker gives the
    /// messages of a group to one consumer only, and again in order after a crash, is the broker's part.
    fn group(&self) -> Option<String> {
        None
    }
}

/// What a stream of messages gives: a [`Delivery`], or a `Result` of one.
pub trait Incoming: sealed::Sealed {
    /// The message.
    type Message: Delivery;
    /// Why there is none. Its text goes into an event.
    type Error: fmt::Display;

    /// The message, if it is one.
    ///
    /// # Errors
    ///
    /// What the broker's client gave instead.
    fn incoming(self) -> Result<Self::Message, Self::Error>;
}

impl<M: Delivery> Incoming for M {
    type Message = M;
    type Error = Infallible;

    fn incoming(self) -> Result<M, Infallible> {
        Ok(self)
    }
}

impl<M: Delivery, E: fmt::Display> Incoming for Result<M, E> {
    type Message = M;
    type Error = E;

    fn incoming(self) -> Self {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl<M: super::Delivery> Sealed for M {}
    impl<M, E> Sealed for Result<M, E> {}
}
