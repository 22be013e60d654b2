//! The consumer of a group, on a thread of its own.
//!
//! Owns that thread. It polls also while handlers block, so that the group does not take the worker for dead.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Message as _, OwnedMessage};
use rdkafka::{ClientConfig, TopicPartitionList};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::group::{Context, Limits, Shared, list};
use crate::offsets::Flow;
use crate::taken::Taken;

/// How long the thread waits for a message before it turns to its other work.
const TICK: Duration = Duration::from_millis(20);

/// Settings for which the program's configuration has no value.
const DEFAULTS: [(&str, &str); 1] = [("auto.commit.interval.ms", "200")];

/// Settings that override the program's configuration: librdkafka commits stored offsets, and only offsets that are done are stored.
const FORCED: [(&str, &str); 2] = [("enable.auto.commit", "true"), ("enable.auto.offset.store", "false")];

/// A running consumer.
pub(crate) struct Intake {
    shared: Arc<Shared>,
    messages: UnboundedReceiver<Result<Taken, KafkaError>>,
    thread: Option<JoinHandle<()>>,
}

impl Intake {
    /// Joins the group that `config` names.
    pub(crate) fn start(mut config: ClientConfig, topics: &[&str], limits: Limits) -> Result<Self, Error> {
        for (name, value) in DEFAULTS {
            if config.get(name).is_none() {
                config.set(name, value);
            }
        }
        for (name, value) in FORCED {
            config.set(name, value);
        }
        let group = config.get("group.id").unwrap_or_default().to_owned();
        let shared = Arc::new(Shared::new(limits, group));
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

    /// The next message, without those whose partition has gone to another worker meanwhile; `None` once the thread has ended.
    pub(crate) async fn next(&mut self) -> Option<Result<Taken, KafkaError>> {
        loop {
            match self.messages.recv().await {
                Some(Ok(taken)) if !taken.is_held() => {}
                Some(Err(error)) => {
                    self.shared.failed.store(false, Ordering::SeqCst);
                    return Some(Err(error));
                }
                next => return next,
            }
        }
    }

    /// Commits the offsets that are done and leaves the group.
    pub(crate) async fn close(mut self) -> Result<(), Error> {
        let doing = "leave the group";
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = tokio::task::spawn_blocking(|| thread.join()).await.map_err(Error::at(doing))?;
            ended.map_err(|_| Error::new(doing, "the consumer's thread panicked"))?;
        }
        Ok(())
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
    }
}

/// The state of the thread.
struct Polling {
    consumer: Arc<BaseConsumer<Context>>,
    shared: Arc<Shared>,
    sender: UnboundedSender<Result<Taken, KafkaError>>,
}

impl Polling {
    /// Runs until `closing` is set. The drop of the consumer at the end revokes its partitions and leaves the group.
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

    /// Passes an error on, unless an earlier one still waits for the reader.
    fn fail(&self, error: KafkaError) {
        if !self.shared.failed.swap(true, Ordering::SeqCst) {
            self.send(Err(error));
        }
    }

    fn take(&self, message: OwnedMessage) {
        let partition = (message.topic().to_owned(), message.partition());
        let Some(place) = self.shared.offsets().deliver(partition, message.offset()) else { return };
        self.send(Ok(Taken::new(message, place, &self.shared, &self.consumer)));
    }

    /// Passes a message or an error to the handlers. The receiver is gone once the worker ends.
    fn send(&self, message: Result<Taken, KafkaError>) {
        let _ = self.sender.send(message);
    }

    /// Pauses the partitions that hold their share of messages, and resumes those with room again.
    fn hold_back(&self) {
        let Limits { held, least, .. } = self.shared.limits;
        let changes = self.shared.offsets().to_change(held, least);
        for (flow, partitions) in changes {
            if partitions.is_empty() {
                continue;
            }
            if self.change(flow, &list(&partitions)).is_ok() {
                self.shared.offsets().changed(&partitions, flow);
            }
        }
    }

    fn change(&self, flow: Flow, list: &TopicPartitionList) -> KafkaResult<()> {
        match flow {
            Flow::Paused => self.consumer.pause(list),
            Flow::Fetched => self.consumer.resume(list),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use futures_util::FutureExt as _;
    use rdkafka::ClientConfig;
    use rdkafka::error::KafkaError;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{FutureProducer, FutureRecord};
    use rdkafka::util::Timeout;

    use tokio::sync::mpsc::unbounded_channel;

    use super::{Intake, Polling};
    use crate::group::{Context, Limits, Shared};

    async fn until(what: &str, mut condition: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The reader pauses for up to five seconds after each error, and messages wait behind them.
    #[tokio::test]
    async fn one_error_at_a_time_waits_before_the_messages() {
        let shared = Arc::new(Shared::new(Limits { held: 1, least: 1 }, "shippers".to_owned()));
        let consumer = ClientConfig::new().create_with_context(Context(shared.clone())).unwrap();
        let (sender, messages) = unbounded_channel();
        let polling = Polling { consumer: Arc::new(consumer), shared: shared.clone(), sender };
        let mut intake = Intake { shared, messages, thread: None };
        for _ in 0..2 {
            (0..100).for_each(|_| polling.fail(KafkaError::Canceled));
            assert!(matches!(intake.next().now_or_never(), Some(Some(Err(_)))));
            assert!(intake.next().now_or_never().is_none(), "more than one error was queued");
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
        let limits = Limits { held: 100, least: 1 };
        let mut first = Intake::start(config.clone(), &["orders"], limits).unwrap();
        // Nothing is begun: all forty wait, and each message holds the shared state.
        let shared = first.shared.clone();
        until("all are delivered", || Arc::strong_count(&shared) >= 40).await;
        let second = Intake::start(config, &["orders"], limits).unwrap();
        until("the second has a partition", || Arc::strong_count(&second.shared) >= 20).await;
        // The first worker begins the messages of the partition that it keeps, and holds them.
        let mut begun = Vec::new();
        let mut take = || {
            while let Some(Some(Ok(taken))) = first.next().now_or_never() {
                begun.push(taken);
            }
            Arc::strong_count(&shared) < 40
        };
        until("the other partition's messages are gone", &mut take).await;
        let gone = Instant::now();
        while gone.elapsed() < Duration::from_secs(3) {
            assert!(Arc::strong_count(&shared) < 40, "a revoked message came again");
            take();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
