//! A message that a worker has: it is done, or handed back.

use std::sync::mpsc::Sender;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedMessage;

use crate::group::{Context, Shared};
use crate::offsets::Place;

/// How long a message is kept back that was neither handled nor copied.
const UNSETTLED: Duration = Duration::from_secs(1);

/// A message that is to be handled when it is due.
pub(crate) struct Again {
    pub(crate) message: Arc<OwnedMessage>,
    pub(crate) place: Place,
    pub(crate) due: Instant,
    /// How often it was tried by this worker.
    pub(crate) tries: u32,
}

/// A message, and its place, which is open until it is done.
///
/// One that is dropped unsettled is handled again by the same worker: Kafka itself delivers nothing again to a worker that lives.
pub(crate) struct Taken {
    message: Arc<OwnedMessage>,
    settled: bool,
    place: Place,
    tries: u32,
    shared: Arc<Shared>,
    /// The thread's: nobody else ends it.
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

    /// How often it was tried by this worker before.
    pub(crate) const fn tries(&self) -> u32 {
        self.tries
    }

    /// Whether it is still this worker's.
    pub(crate) fn begin(&self) -> bool {
        self.shared.offsets().begin(&self.place)
    }

    /// It is done with.
    pub(crate) fn done(mut self) {
        self.settled = true;
        let mut offsets = self.shared.offsets();
        // Under the lock, so that a later offset is not overtaken by an earlier one.
        if let (Some(next), Some(consumer)) = (offsets.done(&self.place), self.consumer.upgrade()) {
            let (topic, partition) = &self.place.partition;
            // Fails where the partition has gone, and then another worker decides.
            let _ = consumer.store_offset(topic, *partition, next - 1);
        }
    }

    /// To be handled again by this worker after this time.
    pub(crate) fn later(mut self, after: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.hand_back(after);
    }

    /// To be handled by whoever has the partition next.
    pub(crate) fn leave(mut self) {
        self.settled = true;
    }

    fn hand_back(&mut self, after: Duration) {
        if !std::mem::replace(&mut self.settled, true) {
            let (message, place, tries) = (self.message.clone(), self.place.clone(), self.tries);
            // Nobody listens once the worker has ended, and then it is another's.
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
