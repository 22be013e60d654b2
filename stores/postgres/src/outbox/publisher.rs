//! What the relay hands messages to, and how that can fail.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::message::Message;

/// Hands a message to a broker.
///
/// It returns `Ok` once the broker has it for good. It is called again with the same message when it fails,
/// when it takes longer than the relay's [`publish_timeout`](super::Relay::publish_timeout), and when the relay goes
/// away before it could note the success: give the broker [`Message::id`], if it deduplicates.
///
/// In one topic, one message is published at a time, and the next only after the one before. A future that is dropped
/// must not go on publishing.
pub trait Publisher: Send + Sync {
    /// Publishes one message.
    ///
    /// # Errors
    ///
    /// A [`PublishError`], which says what the failure means for this message.
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), PublishError>> + Send;
}

impl<P: Publisher> Publisher for &P {
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), PublishError>> + Send {
        (**self).publish(message)
    }
}

impl<P: Publisher> Publisher for Arc<P> {
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), PublishError>> + Send {
        (**self).publish(message)
    }
}

/// What a failure to publish means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The broker cannot be reached or takes nothing now. It is tried again for as long as it takes, and
    /// not counted as an attempt.
    Unavailable,
    /// This message was not taken this time. It is tried again, and set aside when its attempts are used up.
    Failed,
    /// This message will never be taken. It is set aside at once.
    Poison,
}

/// Why a message was not published.
///
/// The text of the error beneath is kept with the message, for those who look at what was set aside. It is in no
/// event.
#[derive(Debug)]
pub struct PublishError {
    kind: PublishErrorKind,
    source: Box<dyn Error + Send + Sync>,
}

impl PublishError {
    /// A [`PublishErrorKind::Unavailable`].
    pub fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: PublishErrorKind::Unavailable, source: source.into() }
    }

    /// A [`PublishErrorKind::Failed`].
    pub fn failed(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: PublishErrorKind::Failed, source: source.into() }
    }

    /// A [`PublishErrorKind::Poison`].
    pub fn poison(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind: PublishErrorKind::Poison, source: source.into() }
    }

    /// What it means.
    #[must_use]
    pub const fn kind(&self) -> PublishErrorKind {
        self.kind
    }

    /// What is kept of it.
    pub(super) fn text(&self) -> String {
        const LONGEST: usize = 1_000;
        // The server's type text holds no NUL.
        self.source.to_string().chars().filter(|&c| c != '\0').take(LONGEST).collect()
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            PublishErrorKind::Unavailable => "the broker is not available",
            PublishErrorKind::Failed => "the message was not taken",
            PublishErrorKind::Poison => "the message will never be taken",
        })
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
