//! The relay: settings, and what runs side by side in it.
//!
//! Any number of relays share an outbox. A topic is one relay's for a lease, by a row that every relay can see; so
//! no connection and no transaction need live as long as a publish. `worker` has one topic at a time, `turn` is what
//! it does with it, `settled` knows which messages can have none before them that is yet to be seen, `listen` wakes.

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

/// The longest time that can be said.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Publishes what is in an [`Outbox`]: in each topic in the order in which it was enqueued, at least once, always
/// under the same id.
///
/// Run as many as you like, in any processes. Several share the topics; one topic is published by one of them at a
/// time. When one goes away in the midst of a topic, another takes it over when its [`lease`](Self::lease) is over, and
/// publishes again what was not noted: at most the last [`batch`](Self::batch). The first time each message
/// comes, it comes in order; repeats may come after later messages.
///
/// It has up to [`topics`](Self::topics) + 1 connections of its own, opened when they are needed. What fails in the
/// database is tried again until it does not.
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
            lease: Duration::from_secs(30),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            max_attempts: 10,
            on_poison: OnPoison::GoOn,
            keep: Duration::ZERO,
        };
        Self { outbox, publisher, settings }
    }

    /// How many topics are published at a time, from 1 to 64; 4 if not set.
    pub const fn topics(mut self, most: usize) -> Self {
        self.settings.topics = most;
        self
    }

    /// How many messages are read, and noted as published, at a time, from 1 to 1,000; 32 if not set. It bounds the
    /// memory they take, and how many are published again after a crash.
    pub const fn batch(mut self, messages: usize) -> Self {
        self.settings.batch = messages;
        self
    }

    /// How long to wait before the outbox is looked at again, if nothing wakes the relay; 1 second if not set.
    pub const fn poll_interval(mut self, interval: Duration) -> Self {
        self.settings.poll_interval = interval;
        self
    }

    /// How long one call of the publisher may take; 10 seconds if not set. A call that takes longer is dropped, and
    /// means what [`PublishError::unavailable`](super::PublishError::unavailable) means.
    pub const fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.settings.publish_timeout = timeout;
        self
    }

    /// After how long without a sign of this relay another may take over its topics; 30 seconds if not set. At least
    /// twice the [`publish_timeout`](Self::publish_timeout).
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long a topic is left alone after a failure: `first`, doubled each time up to `longest`, and up to as much
    /// again at random; 500 milliseconds and 1 minute if not set.
    pub const fn backoff(mut self, first: Duration, longest: Duration) -> Self {
        (self.settings.first_pause, self.settings.longest_pause) = (first, longest);
        self
    }

    /// How often a message may fail before it is set aside; 10 if not set. What is
    /// [unavailable](super::PublishErrorKind::Unavailable) does not count. A message in whose publishing relays go away again and
    /// again (it ends the process) counts too, from the second time.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.settings.max_attempts = attempts;
        self
    }

    /// What becomes of later messages when one is set aside; they go on if not set.
    pub const fn on_poison(mut self, on_poison: OnPoison) -> Self {
        self.settings.on_poison = on_poison;
        self
    }

    /// For how long a message is kept after it was published, until [`Outbox::purge`] deletes it; if not set, it is deleted
    /// at once. While it is kept, its id cannot be enqueued again.
    pub const fn keep_published(mut self, time: Duration) -> Self {
        self.settings.keep = time;
        self
    }

    /// Runs until `shutdown` is ready: then what is being published is finished (within the
    /// [`publish_timeout`](Self::publish_timeout)) and noted, and the topics are free for others at once.
    ///
    /// It needs a tokio runtime with time and I/O enabled. Dropped before its end, it leaves its topics to others after the
    /// [`lease`](Self::lease). The publisher is called from this future: one that blocks its thread holds up all topics.
    ///
    /// # Errors
    ///
    /// [`OutboxError::Configuration`], at once, if a setting is out of its range. Nothing else ends it.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), OutboxError> {
        self.check()?;
        let (stop, stopped) = watch::channel(false);
        let (ring, waits) = (Notify::new(), Waits::default());
        let workers = (0..self.settings.topics).map(|_| {
            let worker = Worker::new(&self.outbox, &self.publisher, &self.settings, &ring, &waits);
            worker.work(stopped.clone())
        });
        let stopping = async {
            shutdown.await;
            stop.send_replace(true);
            std::future::pending::<()>().await;
        };
        let beside = join(stopping, listen::listen(&self.outbox, &ring));
        // In this order, so that what is to stop does not begin another message.
        select(pin!(beside), pin!(join_all(workers))).await;
        Ok(())
    }

    fn check(&self) -> Result<(), OutboxError> {
        let refuse = |detail: String| Err(OutboxError::Configuration(detail));
        let settings = &self.settings;
        for (name, number, most) in [
            ("topics", settings.topics, 64),
            ("batch", settings.batch, 1_000),
            ("max_attempts", usize::try_from(settings.max_attempts).unwrap_or(usize::MAX), 1_000_000),
        ] {
            if number == 0 || number > most {
                return refuse(format!("`{name}` is {number} and must be from 1 to {most}"));
            }
        }
        for (name, time) in [
            ("poll_interval", settings.poll_interval),
            ("publish_timeout", settings.publish_timeout),
            ("lease", settings.lease),
            ("backoff", settings.first_pause),
            ("backoff", settings.longest_pause),
        ] {
            if time < Duration::from_millis(1) || time > LONGEST {
                return refuse(format!("`{name}` is {time:?} and must be from 1ms to 24h"));
            }
        }
        if settings.lease < settings.publish_timeout * 2 {
            return refuse(format!(
                "`lease` is {:?} and must be at least twice `publish_timeout`, which is {:?}",
                settings.lease, settings.publish_timeout
            ));
        }
        if settings.first_pause > settings.longest_pause {
            return refuse(format!(
                "`backoff` begins with {:?} and must not end with less, {:?}",
                settings.first_pause, settings.longest_pause
            ));
        }
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
