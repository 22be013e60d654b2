//! What the consumer's thread and the handlers share, and what is done when partitions come and go.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::{ClientContext, Offset, TopicPartitionList};

use crate::offsets::{Offsets, Partition};

/// How much is held, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// How many messages are held at the most, those included that are kept back.
    pub(crate) held: usize,
    /// How many a partition may hold, however many there are.
    pub(crate) least: usize,
    /// How long a partition that goes to another worker is kept for what is in work.
    pub(crate) hand_over: Duration,
}

/// What the thread and the handlers share.
pub(crate) struct Shared {
    offsets: Mutex<Offsets>,
    pub(crate) settled: Condvar,
    pub(crate) closing: AtomicBool,
    pub(crate) limits: Limits,
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { offsets: Mutex::default(), settled: Condvar::new(), closing: AtomicBool::new(false), limits }
    }

    pub(crate) fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is done when partitions come and go.
pub(crate) struct Context(pub(crate) Arc<Shared>);

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Self(shared) = self;
        match rebalance {
            Rebalance::Assign(list) => {
                let mut offsets = shared.offsets();
                // All of them anew with the eager assignors, only new ones with `cooperative-sticky`.
                partitions(list).into_iter().for_each(|partition| offsets.assign(partition));
            }
            Rebalance::Revoke(list) => shared.hand_over(consumer, &partitions(list)),
            // All partitions are given up without a word of which.
            Rebalance::Error(_) => shared.offsets().forget(),
        }
    }
}

impl Shared {
    /// Waits for handlers of partitions that go to another worker, at most `hand_over`, and commits what is done. A call
    /// that still runs then is in flight for the other worker, which waits for it.
    fn hand_over(&self, consumer: &BaseConsumer<Context>, partitions: &[Partition]) {
        let mut offsets = self.offsets();
        offsets.leave(partitions);
        // Before they go: one that is resumed when it has just come may lose the answer to where it begins, and
        // stand still.
        let _ = consumer.resume(&list(&offsets.paused(partitions)));
        // Partitions that are lost are with another worker already.
        let patience = if consumer.assignment_lost() { Duration::ZERO } else { self.limits.hand_over };
        let in_work = |offsets: &mut Offsets| offsets.in_work(partitions) > 0;
        let waited = self.settled.wait_timeout_while(offsets, patience, in_work);
        (offsets, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let mut done = TopicPartitionList::new();
        for partition in partitions {
            if let Some(next) = offsets.revoke(partition) {
                let _ = done.add_partition_offset(&partition.0, partition.1, Offset::Offset(next));
            }
        }
        drop(offsets);
        if done.count() > 0 && !consumer.assignment_lost() {
            // If it fails, messages that are done come again, and are replayed.
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
