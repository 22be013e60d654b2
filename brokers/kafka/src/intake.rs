//! The consumer of a group, on a thread of its own.
//!
//! Owns that thread. A rebalance waits on it for the messages in work, while the handlers run in their task.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::{Stream, stream};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{Headers as _, Message as _, OwnedMessage};
use rdkafka::{ClientConfig, TopicPartitionList};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::Error;
use crate::group::{Context, Limits, Shared, list};
use crate::offsets::Flow;
use crate::received::AFTER;
use crate::taken::{Again, Taken};

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
        let shared = Arc::new(Shared::new(limits));
        let consumer: BaseConsumer<_> =
            config.create_with_context(Context(shared.clone())).map_err(Error::at("make the consumer"))?;
        consumer.subscribe(topics).map_err(Error::at("subscribe to the topics"))?;
        let (sender, messages) = unbounded_channel();
        let inside = shared.clone();
        let run = move || Polling::new(consumer, inside, sender).run();
        let thread = std::thread::Builder::new().name("idem-kafka".to_owned()).spawn(run);
        let thread = Some(thread.map_err(Error::at("start the consumer's thread"))?);
        Ok(Self { shared, messages, thread })
    }

    /// The messages as they arrive, without those whose partition has gone to another worker meanwhile.
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
    /// Messages that handlers hand back for another try.
    again: (mpsc::Sender<Again>, Receiver<Again>),
    /// Messages that wait, by the time when they are due and a number that makes the key unique.
    kept_back: BTreeMap<(Instant, u64), Again>,
    kept: u64,
}

impl Polling {
    fn new(
        consumer: BaseConsumer<Context>,
        shared: Arc<Shared>,
        sender: UnboundedSender<Result<Taken, KafkaError>>,
    ) -> Self {
        let (consumer, again) = (Arc::new(consumer), mpsc::channel());
        Self { consumer, shared, sender, again, kept_back: BTreeMap::new(), kept: 0 }
    }

    /// Runs until `closing` is set. The drop of the consumer at the end revokes its partitions and leaves the group.
    fn run(mut self) {
        while !self.shared.closing.load(Ordering::SeqCst) {
            self.hold_back();
            let consumer = self.consumer.clone();
            match consumer.poll(TICK) {
                Some(Ok(message)) => self.take(message.detach()),
                Some(Err(error)) => self.send(Err(error)),
                None => {}
            }
            while let Ok(again) = self.again.1.try_recv() {
                self.keep_back(again);
            }
            while let Some(first) = self.kept_back.first_entry()
                && first.key().0 <= Instant::now()
            {
                let due = first.remove();
                self.hand_out(due);
            }
        }
    }

    fn take(&mut self, message: OwnedMessage) {
        let partition = (message.topic().to_owned(), message.partition());
        let Some(place) = self.shared.offsets().deliver(partition, message.offset()) else { return };
        let due = Instant::now() + wait(&message).unwrap_or_default();
        self.keep_back(Again { message: Arc::new(message), place, due, tries: 0 });
    }

    fn keep_back(&mut self, again: Again) {
        if again.due <= Instant::now() {
            return self.hand_out(again);
        }
        self.kept += 1;
        self.kept_back.insert((again.due, self.kept), again);
    }

    fn hand_out(&self, due: Again) {
        let taken = Taken::new(due, &self.shared, &self.consumer, self.again.0.clone());
        self.send(Ok(taken));
    }

    /// Passes a message or an error to the handlers. The receiver is gone once the worker ends.
    fn send(&self, given: Result<Taken, KafkaError>) {
        let _ = self.sender.send(given);
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

/// How much longer a message from the retry topic must wait.
fn wait(message: &OwnedMessage) -> Option<Duration> {
    let headers = message.headers()?;
    let header = headers.iter().find(|header| header.key == AFTER)?;
    let after: u64 = std::str::from_utf8(header.value?).ok()?.parse().ok()?;
    let sent = Duration::from_millis(u64::try_from(message.timestamp().to_millis()?).ok()?);
    let due = (UNIX_EPOCH + sent).checked_add(Duration::from_millis(after))?;
    // Compares the sender's clock with ours. A difference between the two changes only the length of the wait.
    due.duration_since(SystemTime::now()).ok()
}
