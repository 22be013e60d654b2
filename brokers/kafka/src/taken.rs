//! A message that a handler holds, until it is done or handed back.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedMessage;

use crate::group::{Context, Shared};
use crate::offsets::Place;

/// The pause before a message that was dropped unsettled is handled again.
const UNSETTLED: Duration = Duration::from_secs(1);

/// A message to handle when it is due.
pub(crate) struct Again {
    pub(crate) message: Arc<OwnedMessage>,
    pub(crate) place: Place,
    pub(crate) due: Instant,
    /// How often this worker tried it.
    pub(crate) tries: u32,
}

/// A message and its place in the partition, which stays open until the message is done.
///
/// The same worker handles a message again that is dropped unsettled: Kafka itself does not deliver it again to a running worker.
pub(crate) struct Taken {
    message: Arc<OwnedMessage>,
    settled: bool,
    place: Place,
    tries: u32,
    shared: Arc<Shared>,
    /// Weak, so that only the consumer's thread drops the consumer.
    consumer: Weak<BaseConsumer<Context>>,
    again: Sender<Again>,
}

impl Taken {
    pub(crate) fn new(
        due: Again,
        shared: &Arc<Shared>,
        consumer: &Arc<BaseConsumer<Context>>,
        again: Sender<Again>,
    ) -> Self {
        let Again { message, place, tries, .. } = due;
        let (shared, consumer) = (shared.clone(), Arc::downgrade(consumer));
        Self { message, settled: false, place, tries, shared, consumer, again }
    }

    pub(crate) fn message(&self) -> &OwnedMessage {
        &self.message
    }

    /// How often this worker tried it before.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Marks the message as begun. Returns whether it is still this worker's.
    pub(crate) fn begin(&self) -> bool {
        self.shared.offsets().begin(&self.place)
    }

    /// Marks the offset as done.
    pub(crate) fn done(mut self) {
        self.settled = true;
        let mut offsets = self.shared.offsets();
        // Under the lock, so that a later offset is not overtaken by an earlier one.
        if let (Some(next), Some(consumer)) = (offsets.done(&self.place), self.consumer.upgrade()) {
            let (topic, partition) = &self.place.partition;
            // Fails where the partition has gone to another worker, which then decides.
            let _ = consumer.store_offset(topic, *partition, next - 1);
        }
    }

    /// Lets this worker handle the message again after this time.
    pub(crate) fn later(mut self, after: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.hand_back(after);
    }

    /// Leaves the message to the next worker of the partition.
    pub(crate) fn leave(mut self) {
        self.settled = true;
    }

    fn hand_back(&mut self, after: Duration) {
        if !std::mem::replace(&mut self.settled, true) {
            let (message, place, tries) = (self.message.clone(), self.place.clone(), self.tries);
            // The receiver is gone once the worker has ended; another worker gets the message then.
            let _ = self.again.send(Again { message, place, due: Instant::now() + after, tries });
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shared.offsets().abandon(&self.place);
        self.hand_back(UNSETTLED);
        self.shared.settled.notify_all();
    }
}
