//! The relay: its settings, and its concurrent parts.
//!
//! Any number of relays share an outbox. A relay holds a topic by a lease in a row that every relay can see.
//! So while the publisher works, the relay needs no open transaction, and may lose its connection. A `worker`
//! serves one topic at a time, `turn` publishes that topic's messages, `settled` finds out up to which number
//! no new message can appear, and `listen` wakes the workers.

mod listen;
mod settings;
mod settled;
mod worker;

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join, join_all, select};
use tokio::sync::{Notify, watch};

pub use self::settings::OnPoison;
use self::settings::Settings;
use self::settled::Waits;
use self::worker::Worker;
use super::error::OutboxError;
use super::handle::Outbox;
use super::publisher::Publisher;

/// Publishes the messages of an [`Outbox`]: at least once, always under the same id, and in each topic in the
/// order in which they were enqueued.
///
/// Run any number of relays, in any processes. They share the topics, and only one relay at a time publishes
/// a topic. When a relay dies, another relay takes over its topics after the lease has expired. The lease is
/// three times the [`publish_timeout`](Self::publish_timeout), but at least 1 second. The new relay publishes
/// again the messages that were not recorded as published: at most the last [`batch`](Self::batch) messages
/// of each topic. The first delivery of each message is in order, unless the message was set aside. Repeats
/// may come after later messages.
///
/// A relay has up to [`topics`](Self::topics) + 1 connections of its own, opened when they are needed. It
/// retries failures of the database without a limit.
#[must_use]
pub struct Relay<P> {
    outbox: Outbox,
    publisher: P,
    settings: Settings,
}

impl<P: Publisher> Relay<P> {
    /// A relay between this outbox and this publisher.
    pub const fn new(outbox: Outbox, publisher: P) -> Self {
        let settings = Settings {
            topics: 4,
            batch: 32,
            poll_interval: Duration::from_secs(1),
            publish_timeout: Duration::from_secs(10),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            max_attempts: 10,
            on_poison: OnPoison::GoOn,
            keep: Duration::ZERO,
        };
        Self { outbox, publisher, settings }
    }

    /// How many topics are published at a time, from 1 to 64; 4 unless set.
    pub const fn topics(mut self, most: usize) -> Self {
        self.settings.topics = most;
        self
    }

    /// How many messages of a topic the relay reads together, from 1 to 1,000; 32 unless set. The relay also
    /// records them as published together, so this number limits how many messages of a topic are published
    /// again after a crash. Whatever this number is, the payloads that are read after the first message have
    /// at most 4 MiB together.
    pub const fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// How often the relay looks for messages if nothing wakes it, from 1 millisecond to 1 hour; every second
    /// unless set.
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How long one call of the publisher may take, from 1 millisecond to 1 hour; 10 seconds unless set. A
    /// call that takes longer is dropped, and counts as
    /// [`PublishError::unavailable`](super::PublishError::unavailable). A relay's lease of a topic is three
    /// times this timeout, and at least 1 second. If the relay does not renew the lease in this time, another
    /// relay takes over the topic.
    pub const fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// The pause of a topic after a failure. It begins with `first`, doubles with each further failure, and
    /// grows up to `longest`. A random time of at most the same length is added. Unless set, `first` is 500
    /// milliseconds and `longest` is 1 minute. Both are from 1 millisecond to 1 hour, and `longest` is at
    /// least `first`.
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.settings.first_pause, self.settings.longest_pause) = (first, longest);
        self
    }

    /// How often a message may fail before it is set aside; 10 unless set. Failures of kind
    /// [unavailable](super::PublishErrorKind::Unavailable) do not count. A message may crash the process. So
    /// if relays die again and again while they publish a message, their deaths also count as failures, from
    /// the second death on.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// What happens to the later messages of a topic when a message is set aside; [`OnPoison::GoOn`] unless
    /// set.
    pub const fn on_poison(mut self, on_poison: OnPoison) -> Self {
        self.settings.on_poison = on_poison;
        self
    }

    /// How long a message is kept after it was published. After this time, [`Outbox::purge`] deletes it.
    /// Unless set, a message is deleted at once. While it is kept, its id cannot be enqueued again.
    pub const fn keep_published(mut self, time: Duration) -> Self {
        self.settings.keep = time;
        self
    }

    /// Runs until `shutdown` is ready. Then the relay finishes the messages that are being published (within
    /// the [`publish_timeout`](Self::publish_timeout)), records them, and frees its topics for other relays
    /// at once.
    ///
    /// The relay needs a tokio runtime with time and I/O enabled. If the future is dropped before its end,
    /// other relays get its topics after the lease has expired. The publisher is called from this future, so
    /// a publisher that blocks its thread stops the publishing of all topics.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Configuration`], at once, if a setting is out of its range. No other error ends the
    /// relay.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), OutboxError> {
        self.settings.check().map_err(OutboxError::Configuration)?;
        let (stop, stopped) = watch::channel(false);
        let (ring, waits) = (Notify::new(), Waits::default());
        let workers =
            (0..self.settings.topics).map(|_| Worker::new(&self, &ring, &waits).work(stopped.clone()));
        let stopping = async {
            shutdown.await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let beside = join(stopping, listen::listen(&self.outbox, &self.settings, &ring));
        // `beside` is polled first, so that the workers see the shutdown before they begin another message.
        select(pin!(beside), pin!(join_all(workers))).await;
        Ok(())
    }
}

impl<P> fmt::Debug for Relay<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("outbox", &self.outbox)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
