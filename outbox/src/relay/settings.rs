//! The options of a relay.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use idem_store_kit::limits::{check_number, check_time};

const LEAST_TIME: Duration = Duration::from_millis(1);
/// The shortest lease. A shorter lease could end while a busy machine or database delays a relay that still
/// works.
const LEAST_LEASE: Duration = Duration::from_secs(1);

/// What happens to the later messages of a topic when a message is set aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnPoison {
    /// The later messages are published, and the message that was set aside is left out.
    #[default]
    GoOn,
    /// The later messages wait until a person calls [`Outbox::retry`](super::Outbox::retry) or
    /// [`Outbox::discard`](super::Outbox::discard).
    Block,
}

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) topics: usize,
    pub(super) batch: usize,
    pub(super) poll_interval: Duration,
    pub(super) publish_timeout: Duration,
    pub(super) first_pause: Duration,
    pub(super) longest_pause: Duration,
    pub(super) max_attempts: u32,
    pub(super) on_poison: OnPoison,
    pub(super) keep: Duration,
}

impl Settings {
    /// How long a relay's claim of a topic lasts without a renewal. After that, another relay may take over
    /// the topic.
    pub(super) fn lease(&self) -> Duration {
        (self.publish_timeout * 3).max(LEAST_LEASE)
    }

    pub(super) fn check(&self) -> Result<(), String> {
        check_number("topics", self.topics, 64)?;
        check_number("batch", self.batch, 1_000)?;
        check_number("max_attempts", usize::try_from(self.max_attempts).unwrap_or(usize::MAX), 1_000_000)?;
        check_time("poll_interval", self.poll_interval, LEAST_TIME)?;
        check_time("publish_timeout", self.publish_timeout, LEAST_TIME)?;
        check_time("backoff(first)", self.first_pause, LEAST_TIME)?;
        check_time("backoff(longest)", self.longest_pause, self.first_pause)
    }

    /// The pause after the `failures`th failure in a row.
    pub(super) fn pause(&self, failures: u32) -> Duration {
        let index = usize::try_from(failures.saturating_sub(1)).unwrap_or(usize::MAX).min(64);
        ExponentialBuilder::new()
            .with_min_delay(self.first_pause)
            .with_max_delay(self.longest_pause)
            .without_max_times()
            .with_jitter()
            .build()
            .nth(index)
            .unwrap_or(self.longest_pause)
    }
}
