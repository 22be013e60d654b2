//! The trait through which a consumer settles a message with its broker.

use std::fmt;
use std::future::ready;
use std::time::Duration;

use super::DeadLetter;

/// A message as the broker delivered it, and how it is settled with the broker.
///
/// This trait connects a broker's client to a [`Consumer`](super::Consumer). The consumer settles each
/// message by one of the first four methods. If such a method fails, the consumer counts the error and
/// reports it as an event with the error's text, so keep passwords out of that text. The consumer repeats a
/// failed [`retry`](Self::retry) or [`reject`](Self::reject), with growing pauses, as long as the message [is
/// held](Self::is_held). Otherwise, the broker must deliver the message again, and the new delivery gets the
/// recorded result, if there is one.
///
/// ```
/// use std::convert::Infallible;
/// use std::time::Duration;
///
/// use idem::message::{DeadLetter, Delivery};
///
/// struct Message {
///     body: String,
/// }
///
/// impl Delivery for Message {
///     type Error = Infallible;
///
///     async fn acknowledge(&self) -> Result<(), Infallible> {
///         // The client's `ack`.
///         Ok(())
///     }
///
///     async fn retry(&self, after: Duration) -> Result<(), Infallible> {
///         // The client's `nack` with a delay, or a copy to a queue of delayed messages and an `ack`.
///         Ok(())
///     }
///
///     async fn reject(&self, letter: &DeadLetter) -> Result<(), Infallible> {
///         // A copy to the dead letters, with `letter.headers(..)`, and an `ack`.
///         Ok(())
///     }
///
///     async fn give_back(&self) -> Result<(), Infallible> {
///         // The client's `nack`, without a delay.
///         Ok(())
///     }
/// }
/// ```
pub trait Delivery {
    /// Why the broker could not settle the message. The text of the error goes into an event.
    type Error: fmt::Display;

    /// The name of the broker in OpenTelemetry's `messaging.system`, for the span of the handler.
    const SYSTEM: Option<&'static str> = None;

    /// The message is done, so the broker must not deliver it again.
    fn acknowledge(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// The broker must deliver the message again, not sooner than `after` from now. Not called for a message
    /// that is retried in its place: see [`group`](Self::group) and
    /// [`retries_in_place`](Self::retries_in_place).
    fn retry(&self, after: Duration) -> impl Future<Output = Result<(), Self::Error>>;

    /// The message must be set aside. Acknowledge it only after the dead letter is stored. If only the
    /// acknowledgement fails, the consumer calls `reject` again, and this second call should not store the
    /// letter again.
    fn reject(&self, letter: &DeadLetter) -> impl Future<Output = Result<(), Self::Error>>;

    /// The consumer shuts down before the message is done, so the broker must deliver it again at once, to
    /// any worker.
    fn give_back(&self) -> impl Future<Output = Result<(), Self::Error>>;

    /// The consumer calls this at the interval [`extend_every`](super::Consumer::extend_every), from the
    /// message's arrival until the message is settled. It is for brokers that otherwise deliver an unsettled
    /// message again after some time. Does nothing unless it is overridden.
    fn extend(&self) -> impl Future<Output = Result<(), Self::Error>> {
        ready(Ok(()))
    }

    /// Whether the broker still counts the message as delivered to this worker. While it does, a failed
    /// `retry` or `reject` is repeated, which uses up no delivery. `false` unless it is overridden.
    fn is_held(&self) -> bool {
        false
    }

    /// Whether the consumer itself retries the message: it keeps the message, and runs the handler again
    /// after the pause. This is for brokers that cannot deliver a message again. Other messages are handled
    /// meanwhile. `false` unless it is overridden.
    fn retries_in_place(&self) -> bool {
        false
    }

    /// Whether this is the last time that the broker delivers the message. If so, the message is set aside
    /// instead of retried, with the reason `exhausted`. `false` unless it is overridden.
    fn is_last_delivery(&self) -> bool {
        false
    }

    /// How long the consumer waits before it first handles the message, for brokers that cannot delay a
    /// message. Zero unless it is overridden.
    fn delay(&self) -> Duration {
        Duration::ZERO
    }

    /// How often the broker has delivered the message, including this time, if the broker reports it:
    /// `Some(1)` at the first delivery. This number lets [`max_tries`](super::Consumer::max_tries) reject a
    /// message whose handler never reaches its idempotent call. `None`, unless it is overridden.
    fn deliveries(&self) -> Option<u32> {
        None
    }

    /// The broker's name for the message, for events and dead letters: its id, offset or sequence number, but
    /// nothing private. `None`, unless it is overridden.
    fn id(&self) -> Option<String> {
        None
    }

    /// The queue, stream or topic that the message comes from: `messaging.destination.name` of the handler's
    /// span, and the label `queue` of the metrics. A label must have few values, so return no subject or
    /// routing key that contains an id. `None`, unless it is overridden.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Messages of one group are handled one after another, in the order in which they came. `None`, the
    /// default, means that the message belongs to no group.
    ///
    /// A message of a group is retried in its place, after its pause, and later messages of the group wait.
    /// No message of the group goes back to the broker meanwhile, so the broker's count of deliveries does
    /// not rise. Give the operation `max_attempts`; otherwise one message can block its group for ever. The
    /// broker must deliver the messages of a group to one consumer only, and in order again after a crash.
    fn group(&self) -> Option<String> {
        None
    }
}
