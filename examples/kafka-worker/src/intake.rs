//! The consumer of a group, on a thread of its own.
//!
//! Owns the thread: there a rebalance can wait for what is in work, while the handlers go on. It knows no
//! store and calls no function of the shop.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, stream};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::{ClientConfig, ClientContext, Offset, TopicPartitionList};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use worker_demo::Failure;

use crate::offsets::{Offsets, Partition, Place};

/// How long a message is kept back, in milliseconds from when it was sent.
pub(crate) const AFTER: &str = "idem-after-ms";

/// How many messages are held at the most, those included that are kept back. Then no more are fetched until
/// half of them are done.
const HELD: usize = 200;

/// How long a partition that goes to another worker is kept for what is in work.
const FINISH: Duration = Duration::from_secs(3);

/// How long the thread waits for a message before it looks at what else there is to do.
const TICK: Duration = Duration::from_millis(20);

/// What the thread and the handlers share.
#[derive(Default)]
struct Shared {
    offsets: Mutex<Offsets>,
    settled: Condvar,
    closing: AtomicBool,
    paused: AtomicBool,
}

impl Shared {
    fn offsets(&self) -> MutexGuard<'_, Offsets> {
        self.offsets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is done when partitions come and go.
pub(crate) struct Context(Arc<Shared>);

impl ClientContext for Context {}

impl ConsumerContext for Context {
    fn pre_rebalance(&self, consumer: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        let Self(shared) = self;
        match rebalance {
            Rebalance::Assign(list) => {
                let mut offsets = shared.offsets();
                partitions(list).into_iter().for_each(|partition| offsets.assign(partition));
                shared.paused.store(false, Ordering::SeqCst);
            }
            Rebalance::Revoke(list) => shared.hand_over(consumer, &partitions(list)),
            // All partitions are given up without a word of which.
            Rebalance::Error(_) => shared.offsets().forget(),
        }
    }
}

impl Shared {
    /// Finishes what is in work in partitions that go to another worker, or gives it up when that takes too
    /// long, and commits what is done. What is given up the other one finds in flight, and waits for it.
    fn hand_over(&self, consumer: &BaseConsumer<Context>, partitions: &[Partition]) {
        let mut offsets = self.offsets();
        offsets.leave(partitions);
        // Partitions that are lost are with another worker already.
        let patience = if consumer.assignment_lost() { Duration::ZERO } else { FINISH };
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

/// A message, and its place, which is open until it is said to be done.
pub(crate) struct Taken {
    pub(crate) message: OwnedMessage,
    place: Place,
    shared: Arc<Shared>,
    /// The thread's: nobody else ends it.
    consumer: Weak<BaseConsumer<Context>>,
}

impl Taken {
    /// Whether it is still this worker's.
    fn begin(&self) -> bool {
        self.shared.offsets().begin(&self.place)
    }

    /// It is done with.
    pub(crate) fn done(self) {
        let mut offsets = self.shared.offsets();
        // Under the lock, so that a later offset is not overtaken by an earlier one.
        if let (Some(next), Some(consumer)) = (offsets.done(&self.place), self.consumer.upgrade()) {
            let (topic, partition) = &self.place.partition;
            // Fails where the partition has gone, and then another worker decides.
            let _ = consumer.store_offset(topic, *partition, next - 1);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.shared.offsets().abandon(&self.place);
        self.shared.settled.notify_all();
    }
}

/// A consumer that runs.
pub(crate) struct Intake {
    shared: Arc<Shared>,
    messages: UnboundedReceiver<Result<Taken, KafkaError>>,
    thread: Option<JoinHandle<()>>,
}

impl Intake {
    /// Joins the group that `config` names.
    pub(crate) fn start(config: &ClientConfig, topics: &[&str]) -> Result<Self, Failure> {
        let shared = Arc::new(Shared::default());
        let mut config = config.clone();
        // What is stored is committed soon; stored is only what is done.
        config.set("enable.auto.offset.store", "false").set("auto.commit.interval.ms", "200");
        let consumer: BaseConsumer<_> = config.create_with_context(Context(shared.clone()))?;
        consumer.subscribe(topics)?;
        let (sender, messages) = unbounded_channel();
        let inside = shared.clone();
        let run = move || Polling::new(consumer, inside, sender).run();
        let thread = std::thread::Builder::new().name("kafka".to_owned()).spawn(run)?;
        Ok(Self { shared, messages, thread: Some(thread) })
    }

    /// The messages that are this worker's when they are taken.
    pub(crate) fn messages(&mut self) -> impl Stream<Item = Result<Taken, KafkaError>> + '_ {
        stream::poll_fn(|cx| {
            loop {
                match std::task::ready!(self.messages.poll_recv(cx)) {
                    Some(Ok(taken)) if !taken.begin() => {}
                    given => return std::task::Poll::Ready(given),
                }
            }
        })
    }

    /// Commits what is done and leaves the group.
    pub(crate) async fn close(mut self) -> Result<(), Failure> {
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = tokio::task::spawn_blocking(|| thread.join()).await?;
            ended.map_err(|_| "the consumer's thread panicked")?;
        }
        Ok(())
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
    }
}

/// The thread's own.
struct Polling {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    sender: UnboundedSender<Result<Taken, KafkaError>>,
    /// By when they are due, and a number.
    kept_back: BTreeMap<(Instant, u64), Taken>,
    kept: u64,
}

impl Polling {
    fn new(
        consumer: BaseConsumer<Context>,
        shared: Arc<Shared>,
        sender: UnboundedSender<Result<Taken, KafkaError>>,
    ) -> Self {
        Self { consumer: Arc::new(consumer), shared, sender, kept_back: BTreeMap::new(), kept: 0 }
    }

    /// Until it is closed. Dropping the consumer revokes its partitions, and leaves the group.
    fn run(mut self) {
        while !self.shared.closing.load(Ordering::SeqCst) {
            self.hold_back();
            let consumer = self.consumer.clone();
            match consumer.poll(TICK) {
                Some(Ok(message)) => self.take(message.detach()),
                Some(Err(error)) => self.send(Err(error)),
                None => {}
            }
            while let Some(first) = self.kept_back.first_entry()
                && first.key().0 <= Instant::now()
            {
                let taken = first.remove();
                self.send(Ok(taken));
            }
        }
    }

    fn take(&mut self, message: OwnedMessage) {
        let partition = (message.topic().to_owned(), message.partition());
        let Some(place) = self.shared.offsets().deliver(partition, message.offset()) else { return };
        let wait = wait(&message);
        let taken =
            Taken { message, place, shared: self.shared.clone(), consumer: Arc::downgrade(&self.consumer) };
        match wait {
            Some(wait) => {
                self.kept += 1;
                self.kept_back.insert((Instant::now() + wait, self.kept), taken);
            }
            None => self.send(Ok(taken)),
        }
    }

    /// Nobody listens any more once the worker ends.
    fn send(&self, given: Result<Taken, KafkaError>) {
        let _ = self.sender.send(given);
    }

    /// Stops fetching while too much is held.
    fn hold_back(&self) {
        let open = self.shared.offsets().open();
        let paused = self.shared.paused.load(Ordering::SeqCst);
        let Ok(assignment) = self.consumer.assignment() else { return };
        if !paused && open >= HELD && self.consumer.pause(&assignment).is_ok() {
            self.shared.paused.store(true, Ordering::SeqCst);
        } else if paused && open <= HELD / 2 && self.consumer.resume(&assignment).is_ok() {
            self.shared.paused.store(false, Ordering::SeqCst);
        }
    }
}

/// How long a message is still to be kept back.
fn wait(message: &OwnedMessage) -> Option<Duration> {
    let headers = message.headers()?;
    let header = headers.iter().find(|header| header.key == AFTER)?;
    let after: u64 = std::str::from_utf8(header.value?).ok()?.parse().ok()?;
    let sent = Duration::from_millis(u64::try_from(message.timestamp().to_millis()?).ok()?);
    let due = (UNIX_EPOCH + sent).checked_add(Duration::from_millis(after))?;
    // Of the sender's clock and of ours; nothing but a delay hangs on it.
    due.duration_since(SystemTime::now()).ok()
}
