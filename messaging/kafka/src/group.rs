//! The state that the consumer's thread and the handlers share, and the rebalance callbacks.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::producer::FutureProducer;
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::offsets::{Offsets, Partition};

pub(crate) struct Settings {
    pub(crate) group: String,
    /// How many messages the partitions may hold together, including messages that wait for a retry. Each
    /// partition gets an equal share.
    pub(crate) held: usize,
    /// Each partition may hold at least this many messages, even if its equal share is smaller.
    pub(crate) least: usize,
    pub(crate) producer: FutureProducer,
    pub(crate) retry_topic: Option<String>,
    pub(crate) dead_letters: String,
}

pub(crate) struct Shared {
    pub(crate) settings: Settings,
    offsets: Mutex<Offsets>,
    pub(crate) closing: AtomicBool,
    /// Whether an error waits for the reader. At most one error may wait, because the worker pauses after
    /// each error, and the messages behind the error wait, too.
    pub(crate) failed: AtomicBool,
}

impl Shared {
    pub(crate) fn new(settings: Settings) -> Self {
        let (closing, failed) = (AtomicBool::default(), AtomicBool::default());
        Self { settings, offsets: Mutex::default(), closing, failed }
    }

    pub(crate) fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The rebalance callbacks.
pub(crate) struct Context(pub(crate) Arc<Shared>);

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Self(shared) = self;
        match rebalance {
            Rebalance::Assign(list) => {
                let mut offsets = shared.offsets();
                // Eager assignors list all partitions again; `cooperative-sticky` lists only the new
                // partitions.
                partitions(list).into_iter().for_each(|partition| offsets.assign(partition));
            }
            Rebalance::Revoke(list) => shared.revoke(consumer, &partitions(list)),
            // The worker loses all partitions, and the event does not list them.
            Rebalance::Error(_) => shared.offsets().forget(),
        }
    }
}

impl Shared {
    /// Commits the finished offsets of partitions that go to another worker. If a call for one of their
    /// messages still runs here, the other worker finds the call in flight, and waits for it.
    fn revoke(&self, consumer: &BaseConsumer<Context>, partitions: &[Partition]) {
        let mut offsets = self.offsets();
        // Paused partitions are resumed here and not after the next assignment. If a partition is resumed
        // just after its assignment, librdkafka may lose the answer with the start offset. Then it never
        // fetches from the partition.
        let _ = consumer.resume(&list(&offsets.paused(partitions)));
        let mut done = TopicPartitionList::new();
        for partition in partitions {
            if let Some(next) = offsets.revoke(partition) {
                let _ = done.add_partition_offset(&partition.0, partition.1, Offset::Offset(next));
            }
        }
        drop(offsets);
        // The offsets of lost partitions are not committed, because another worker may already have them.
        if done.count() > 0 && !consumer.assignment_lost() {
            // If this fails, messages that are done are delivered again, and their results are replayed.
            let _ = consumer.commit(&done, CommitMode::Sync);
        }
    }
}

fn partitions(list: &TopicPartitionList) -> Vec<Partition> {
    list.elements().iter().map(|element| (element.topic().to_owned(), element.partition())).collect()
}

pub(crate) fn list(partitions: &[Partition]) -> TopicPartitionList {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    partitions.iter().for_each(|(topic, partition)| {
        list.add_partition(topic, *partition);
    });
    list
}
