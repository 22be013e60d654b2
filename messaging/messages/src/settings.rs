//! The options of a consumer, and how many messages they let it hold.

use std::time::Duration;

/// How many messages, including waiting messages, the consumer may hold for each handler of its
/// `concurrency`.
const WAITING: usize = 100;

#[derive(Clone, Debug)]
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) prefetch: Option<usize>,
    pub(super) grace: Duration,
    pub(super) drain: Duration,
    pub(super) extend_every: Option<Duration>,
    pub(super) broker_timeout: Duration,
    pub(super) horizon: Option<Duration>,
    pub(super) max_tries: u32,
    /// Whether the consumer holds a message if the store fails. Otherwise the broker delivers it again.
    pub(super) holds: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            concurrency: 10,
            prefetch: None,
            grace: Duration::from_secs(20),
            drain: Duration::from_secs(10),
            extend_every: None,
            broker_timeout: Duration::from_secs(30),
            horizon: None,
            max_tries: 10,
            holds: true,
        }
    }
}

impl Settings {
    /// How many messages the consumer may hold. Unless `prefetch` is set, messages that wait for other
    /// messages or for the end of a pause do not count.
    pub(super) fn capacity(&self) -> usize {
        self.prefetch.unwrap_or_default().max(self.concurrency)
    }

    /// How many more messages the consumer may take. It holds `held` messages. Of these, `idle` messages wait
    /// for other messages or for the end of a pause.
    pub(super) fn free(&self, held: usize, idle: usize) -> usize {
        match self.prefetch {
            Some(_) => self.capacity().saturating_sub(held),
            None => {
                let waiting = self.concurrency.saturating_mul(WAITING).saturating_sub(held);
                self.capacity().saturating_sub(held.saturating_sub(idle)).min(waiting)
            }
        }
    }
}
