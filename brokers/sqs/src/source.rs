//! A queue as a source of messages.

use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, QueueAttributeName};
use futures_util::future::join;
use idem_runtime::drain;
use idem_runtime::message::{Choose, Consumer, OnError, Summary};

use crate::Error;
use crate::deletes::Deletes;
use crate::failed::failed;
use crate::received::{GroupBy, Received, Shared};
use crate::taking::Taking;

/// How long the shutdown waits for results that are still to be recorded.
const DRAIN: Duration = Duration::from_secs(10);

/// How long one request waits for messages, unless set. The shutdown waits for it.
const WAIT: Duration = Duration::from_secs(5);

/// The longest wait that SQS allows.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The messages of an SQS queue, standard or FIFO.
///
/// The source does not create the queues. See the [crate](crate) for what SQS gets, and its limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    client: Client,
    queue: String,
    dead_letters: String,
    group_by: Option<GroupBy>,
    fetch: usize,
    wait: Duration,
    drain: Duration,
}

impl Source {
    /// `queue` and `dead_letters` are URLs; rejected messages go to the second, which is a FIFO queue if the first is.
    ///
    /// The program needs `sqs:ReceiveMessage`, `DeleteMessage`, `ChangeMessageVisibility` and `GetQueueAttributes` on the first,
    /// and `SendMessage` on the second.
    pub fn new(client: Client, queue: impl Into<String>, dead_letters: impl Into<String>) -> Self {
        let (queue, dead_letters) = (queue.into(), dead_letters.into());
        Self { client, queue, dead_letters, group_by: None, fetch: 10, wait: WAIT, drain: DRAIN }
    }

    /// Messages for which `group` returns the same text are handled one after another: see
    /// [`Delivery::group`](idem_runtime::message::Delivery::group). Unless this is set, the group is the `MessageGroupId` on a FIFO
    /// queue; on a standard queue messages are handled in no order.
    pub fn group_by(mut self, group: impl Fn(&Message) -> Option<String> + Send + Sync + 'static) -> Self {
        self.group_by = Some(Arc::new(group));
        self
    }

    /// How many messages one request asks for: 1 to 10, 10 unless set, and never more than the consumer holds.
    pub fn fetch(mut self, messages: usize) -> Self {
        self.fetch = messages.clamp(1, 10);
        self
    }

    /// How long one request waits for messages; 5 s unless set, at most 20 s. The shutdown waits for the open
    /// request, and makes its messages visible again at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(LONGEST_WAIT);
        self
    }

    /// How long the shutdown waits for results that are still to be recorded and claims to be released; 10 s unless set.
    /// See [`idem::drain`](drain()).
    pub fn drain(mut self, patience: Duration) -> Self {
        self.drain = patience;
        self
    }

    /// Handles messages for ever: [`run_until`](Self::run_until) without a shutdown.
    ///
    /// # Errors
    ///
    /// As [`run_until`](Self::run_until).
    pub async fn run<C, O, H, F, T, E>(self, consumer: Consumer<C, O>, handler: H) -> Result<Summary, Error>
    where
        H: Fn(&Received) -> F,
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
        C: Choose<E>,
        O: OnError<Received, E>,
    {
        self.run_until(pending(), consumer, handler).await
    }

    /// Handles messages until `shutdown` ends; then finishes the handlers that run, gives back the messages that are not begun,
    /// and drains.
    ///
    /// Unless `consumer` sets them, [`extend_every`](Consumer::extend_every) is a third of the queue's visibility timeout, and
    /// [`redelivery_horizon`](Consumer::redelivery_horizon) its retention. If SQS cannot be reached later, the source waits until
    /// it answers.
    ///
    /// # Errors
    ///
    /// Before the first message: the queue's attributes cannot be read, or its visibility timeout is 0. Later failures are reported
    /// as events and counted in the summary.
    ///
    /// # Cancellation
    ///
    /// As [`Consumer::run`]: handlers are dropped, and SQS delivers their messages again after the visibility timeout.
    pub async fn run_until<C, O, H, F, T, E>(
        self,
        shutdown: impl Future<Output = ()>,
        consumer: Consumer<C, O>,
        handler: H,
    ) -> Result<Summary, Error>
    where
        H: Fn(&Received) -> F,
        F: Future<Output = Result<T, E>>,
        E: fmt::Display,
        C: Choose<E>,
        O: OnError<Received, E>,
    {
        let (visibility, retention) = self.timeouts().await?;
        let consumer = consumer.or_extend_every(visibility / 3).or_redelivery_horizon(retention);
        let at_once = self.fetch.min(consumer.capacity());
        let Self { client, queue, dead_letters, group_by, wait, drain: patience, .. } = self;
        let (deletes, sender) = Deletes::new(client.clone(), queue.clone());
        let shared = Arc::new(Shared::new(client, queue, dead_letters, visibility, group_by, sender));
        let mut taking = Taking::new(shared, at_once, wait);
        let working = async move {
            let mut summary = consumer.run_until(shutdown, taking.messages(), handler).await;
            if let Err(error) = taking.give_back().await {
                summary.broker_errors += 1;
                tracing::warn!(target: "idem", event = "broker_failed", %error, "the broker failed at the shutdown");
            }
            summary
        };
        // `deletes.run` ends when the last message is settled: the senders are dropped then.
        let (summary, ()) = join(working, deletes.run()).await;
        drain(patience).await;
        Ok(summary)
    }

    /// The visibility timeout and the retention.
    async fn timeouts(&self) -> Result<(Duration, Duration), Error> {
        let doing = "read the queue's attributes";
        let (visibility, retention) =
            (QueueAttributeName::VisibilityTimeout, QueueAttributeName::MessageRetentionPeriod);
        let asked = self.client.get_queue_attributes().queue_url(&self.queue);
        let asked = asked.attribute_names(visibility.clone()).attribute_names(retention.clone());
        let told = asked.send().await.map_err(failed(doing))?;
        let seconds = |name: &QueueAttributeName| {
            let value = told.attributes().and_then(|attributes| attributes.get(name));
            let seconds = value.and_then(|value| value.parse().ok()).map(Duration::from_secs);
            seconds.ok_or_else(|| Error::new(doing, format!("SQS did not return {name}")))
        };
        match (seconds(&visibility)?, seconds(&retention)?) {
            (Duration::ZERO, _) => Err(Error::new("use the queue", "its visibility timeout must not be 0")),
            both => Ok(both),
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("queue", &self.queue)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
