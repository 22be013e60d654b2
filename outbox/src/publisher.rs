//! The publisher that a relay calls, and its errors.

use std::error::Error;
use std::fmt;

use super::message::Message;

/// Sends a message to a broker.
///
/// `publish` returns `Ok` once the broker has stored the message. The relay calls `publish` again with the
/// same message if the call fails, if it takes longer than the relay's
/// [`publish_timeout`](super::Relay::publish_timeout), or if the relay dies before it records the success. So
/// pass [`Message::id`] to a broker that deduplicates. After [`PublishErrorKind::Poison`] or the last of
/// `max_attempts`, the relay sets the message aside instead.
///
/// In one topic, messages are published one after the other. If the relay drops the future of `publish`, the
/// publisher must stop publishing the message.
pub trait Publisher: Send + Sync {
    /// Publishes one message.
    ///
    /// # Errors
    ///
    /// A [`PublishError`], whose kind decides what the relay does with the message.
    fn publish(&self, message: &Message) -> impl Future<Output = Result<(), PublishError>> + Send;
}

/// The kinds of failures to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishErrorKind {
    /// The broker cannot be reached or accepts no messages now. The relay retries without a limit, and the
    /// failure does not count as an attempt.
    Unavailable,
    /// The broker did not accept this message. The relay retries, and sets the message aside after
    /// `max_attempts`.
    Failed,
    /// The broker will never accept this message. The relay sets the message aside at once.
    Poison,
}

/// Why a message was not published.
///
/// The text of the underlying error is stored with the message, for operators who look at messages that were
/// set aside. No event contains it.
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

    /// The kind of the failure.
    #[must_use]
    pub const fn kind(&self) -> PublishErrorKind {
        self.kind
    }

    /// The text that is stored with the message.
    pub(super) fn text(&self) -> String {
        const LONGEST: usize = 1_000;
        // PostgreSQL's type `text` cannot contain NUL.
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
