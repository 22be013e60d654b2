//! A message that a worker holds, until it is done or its partition goes to another worker.

use std::sync::{Arc, Weak};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::OwnedMessage;

use crate::group::{Context, Shared};
use crate::offsets::Place;

/// A message and its place in the partition, which stays open until the message is done.
pub(crate) struct Taken {
    message: OwnedMessage,
    place: Place,
    shared: Arc<Shared>,
    /// Weak, so that only the consumer's thread drops the consumer.
    consumer: Weak<BaseConsumer<Context>>,
}

impl Taken {
    pub(crate) fn new(
        message: OwnedMessage,
        place: Place,
        shared: &Arc<Shared>,
        consumer: &Arc<BaseConsumer<Context>>,
    ) -> Self {
        Self { message, place, shared: shared.clone(), consumer: Arc::downgrade(consumer) }
    }

    pub(crate) const fn message(&self) -> &OwnedMessage {
        &self.message
    }

    /// Whether the message is still this worker's.
    pub(crate) fn is_held(&self) -> bool {
        self.shared.offsets().holds(&self.place)
    }

    /// The group of the worker.
    pub(crate) fn group(&self) -> &str {
        &self.shared.group
    }

    /// Marks the offset as done.
    pub(crate) fn done(&self) {
        let mut offsets = self.shared.offsets();
        // Under the lock, so that a later offset is not overtaken by an earlier one.
        if let (Some(next), Some(consumer)) = (offsets.done(&self.place), self.consumer.upgrade()) {
            let (topic, partition) = &self.place.partition;
            // Fails where the partition has gone to another worker, which then decides.
            let _ = consumer.store_offset(topic, *partition, next - 1);
        }
    }
}
