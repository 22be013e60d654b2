//! The consumer of a group, on a separate thread.
//!
//! Owns that thread. The thread polls even while handlers block, so that the group does not consider the
//! worker dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use idem_messages::{Delivery as _, Reader, Room};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Message as _, OwnedMessage};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::group::{Context, Settings, Shared, list};
use crate::received::Received;

/// How long one poll waits for a message. Between polls, the thread pauses and resumes partitions, and checks
/// whether it must end.
const TICK: Duration = Duration::from_millis(20);

/// Reads the messages of a consumer group.
pub struct Intake {
    shared: Arc<Shared>,
    messages: UnboundedReceiver<Result<Received, KafkaError>>,
    thread: Option<JoinHandle<()>>,
}

impl Intake {
    /// Joins the group that `config` names.
    pub(crate) fn start(
        mut config: ClientConfig,
        topics: &[&str],
        shared: Arc<Shared>,
    ) -> Result<Self, Error> {
        set_default(&mut config, "auto.commit.interval.ms", "200");
        // librdkafka commits stored offsets, and this thread stores only finished offsets.
        config.set("enable.auto.commit", "true").set("enable.auto.offset.store", "false");
        let consumer: BaseConsumer<_> =
            config.create_with_context(Context(shared.clone())).map_err(Error::at("make the consumer"))?;
        consumer.subscribe(topics).map_err(Error::at("subscribe to the topics"))?;
        let (sender, messages) = unbounded_channel();
        let inside = shared.clone();
        let run = move || Polling { consumer: Arc::new(consumer), shared: inside, sender }.run();
        let thread = std::thread::Builder::new().name("idem-kafka".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Error::at("start the consumer's thread"))?);
        Ok(Self { shared, messages, thread })
    }

    /// The next message. Skips messages whose partition has gone to another worker meanwhile.
    async fn message(&mut self) -> Result<Received, Error> {
        let doing = "receive a message";
        loop {
            match self.messages.recv().await {
                Some(Ok(received)) if !received.is_held() => {}
                Some(Ok(received)) => return Ok(received),
                Some(Err(error)) => {
                    self.shared.failed.store(false, Ordering::SeqCst);
                    return Err(Error::new(doing, error));
                }
                None => return Err(Error::new(doing, "the consumer's thread has ended")),
            }
        }
    }
}

impl Reader for Intake {
    type Message = Received;

    async fn next(&mut self, room: &Room) -> Result<Received, Error> {
        room.free().await;
        self.message().await
    }

    /// Commits the finished offsets and leaves the group.
    async fn close(mut self) -> Result<(), Error> {
        let doing = "leave the group";
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = tokio::task::spawn_blocking(|| thread.join()).await.map_err(Error::at(doing))?;
            ended.map_err(|_| Error::new(doing, "the consumer's thread panicked"))?;
        }
        Ok(())
    }
}

/// Sets an option that the program's configuration does not set.
pub(crate) fn set_default(config: &mut ClientConfig, name: &str, value: &str) {
    if config.get(name).is_none() {
        config.set(name, value);
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
    }
}

/// The state of the thread that polls.
struct Polling {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    sender: UnboundedSender<Result<Received, KafkaError>>,
}

impl Polling {
    /// Runs until `closing` is set. At the end the consumer is dropped, which revokes its partitions and
    /// leaves the group.
    fn run(self) {
        while !self.shared.closing.load(Ordering::SeqCst) {
            self.hold_back();
            match self.consumer.poll(TICK) {
                Some(Ok(message)) => self.take(message.detach()),
                Some(Err(error)) => self.fail(error),
                None => {}
            }
        }
    }

    /// Passes an error on to the reader, unless an earlier error still waits for the reader.
    fn fail(&self, error: KafkaError) {
        if !self.shared.failed.swap(true, Ordering::SeqCst) {
            // Sending fails only if the worker has ended and dropped the receiver.
            let _ = self.sender.send(Err(error));
        }
    }

    fn take(&self, message: OwnedMessage) {
        let partition = (message.topic().to_owned(), message.partition());
        let Some(place) = self.shared.offsets().deliver(partition, message.offset()) else { return };
        let _ = self.sender.send(Ok(Received::new(message, place, &self.shared, &self.consumer)));
    }

    /// Pauses the partitions that hold their share of messages, and resumes partitions that have room again.
    fn hold_back(&self) {
        let Settings { held, least, .. } = &self.shared.settings;
        let changes = self.shared.offsets().to_change(*held, *least);
        for (is_paused, partitions) in changes.into_iter().filter(|(_, partitions)| !partitions.is_empty()) {
            let list = list(&partitions);
            let changed = if is_paused { self.consumer.pause(&list) } else { self.consumer.resume(&list) };
            if changed.is_ok() {
                self.shared.offsets().changed(&partitions, is_paused);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use futures_util::FutureExt as _;
    use idem_broker_tests::until;
    use rdkafka::ClientConfig;
    use rdkafka::error::KafkaError;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{FutureProducer, FutureRecord};
    use rdkafka::util::Timeout;

    use tokio::sync::mpsc::unbounded_channel;

    use super::{Intake, Polling};
    use crate::group::{Context, Settings, Shared};

    /// The state of a worker that may hold this many messages.
    fn shared(held: usize) -> Arc<Shared> {
        let producer = ClientConfig::new().create().unwrap();
        let (group, retry_topic, dead_letters) = ("shippers".to_owned(), None, "orders-dead".to_owned());
        Arc::new(Shared::new(Settings { group, held, least: 1, producer, retry_topic, dead_letters }))
    }

    /// The worker pauses for up to five seconds after each error, and messages wait meanwhile. So at most one
    /// error may wait for the reader.
    #[tokio::test]
    async fn one_error_at_a_time_waits_before_the_messages() {
        let shared = shared(1);
        let consumer = ClientConfig::new().create_with_context(Context(shared.clone())).unwrap();
        let (sender, messages) = unbounded_channel();
        let polling = Polling { consumer: Arc::new(consumer), shared: shared.clone(), sender };
        let mut intake = Intake { shared, messages, thread: None };
        for _ in 0..2 {
            (0..100).for_each(|_| polling.fail(KafkaError::Canceled));
            assert!(matches!(intake.message().now_or_never(), Some(Err(_))));
            assert!(intake.message().now_or_never().is_none(), "more than one error was queued");
        }
    }

    #[tokio::test]
    async fn a_message_of_a_revoked_partition_leaves_its_worker() {
        let kafka = MockCluster::new(1).unwrap();
        kafka.create_topic("orders", 2, 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", kafka.bootstrap_servers());
        let producer: FutureProducer = config.create().unwrap();
        for order in 0..40 {
            let record = FutureRecord::<str, str>::to("orders").payload("order").partition(order % 2);
            producer.send(record, Timeout::Never).await.unwrap();
        }
        config
            .set("group.id", "shippers")
            .set("auto.offset.reset", "earliest")
            .set("session.timeout.ms", "6000");
        let mut first = Intake::start(config.clone(), &["orders"], shared(100)).unwrap();
        // Nothing reads the messages yet, so all forty wait. Each of them holds a reference to the shared
        // state.
        let shared = first.shared.clone();
        until("all are delivered", async || Arc::strong_count(&shared) >= 40).await;
        let second = Intake::start(config, &["orders"], self::shared(100)).unwrap();
        until("the second has a partition", async || Arc::strong_count(&second.shared) >= 20).await;
        // Reads the messages of the partition that the first worker keeps, and holds them.
        let mut begun = Vec::new();
        let mut take = || {
            while let Some(Ok(received)) = first.message().now_or_never() {
                begun.push(received);
            }
            Arc::strong_count(&shared) < 40
        };
        until("the other partition's messages are gone", async || take()).await;
        let gone = Instant::now();
        while gone.elapsed() < Duration::from_secs(3) {
            assert!(Arc::strong_count(&shared) < 40, "a revoked message came again");
            take();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
