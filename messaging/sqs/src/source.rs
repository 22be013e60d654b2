//! A queue as a source of messages.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use idem_messages::{Broker, GroupBy, Plan};

use crate::Error;
use crate::deletes::Deletes;
use crate::letters::Letters;
use crate::received::{Received, Shared};
use crate::taking::{Taking, number};

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
    group_by: GroupBy<Received>,
    wait: Duration,
}

impl Source {
    /// `queue` and `dead_letters` are URLs; rejected messages go to the second, which is a FIFO queue if the first is.
    ///
    /// The program needs `sqs:ReceiveMessage`, `DeleteMessage`, `ChangeMessageVisibility` and `GetQueueAttributes` on the first,
    /// and `SendMessage` on the second; for [`redrive`](Self::redrive) also the first four on the second, and `SendMessage` and `GetQueueUrl` on the queues
    /// that messages came from.
    pub fn new(client: Client, queue: impl Into<String>, dead_letters: impl Into<String>) -> Self {
        let (queue, dead_letters) = (queue.into(), dead_letters.into());
        Self { client, queue, dead_letters, group_by: GroupBy::default(), wait: WAIT }
    }

    /// How long one request waits for messages; 5 s unless set, at most 20 s. The shutdown waits for the open
    /// request, and makes its messages visible again at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(LONGEST_WAIT);
        self
    }

    /// The visibility timeout and the retention.
    async fn timeouts(&self) -> Result<(Duration, Duration), Error> {
        let seconds = async |name| number(&self.client, &self.queue, name).await.map(Duration::from_secs);
        let visibility = seconds(QueueAttributeName::VisibilityTimeout).await?;
        if visibility.is_zero() {
            return Err(Error::new("use the queue", "its visibility timeout must not be 0"));
        }
        Ok((visibility, seconds(QueueAttributeName::MessageRetentionPeriod).await?))
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Taking;
    type Letters = Letters;

    async fn connect(self, plan: &mut Plan) -> Result<Taking, Error> {
        let (visibility, retention) = self.timeouts().await?;
        plan.extend_every(visibility / 3);
        plan.redelivery_horizon(retention);
        let Self { client, queue, dead_letters, wait, .. } = self;
        let (deletes, sender) = Deletes::new(client.clone(), queue.clone());
        // It ends when the last message is settled: the senders are dropped then.
        tokio::spawn(deletes.run());
        let shared = Arc::new(Shared::new(client, queue, dead_letters, visibility, sender));
        Ok(Taking::new(shared, plan.room().clone(), wait))
    }

    async fn letters(&self) -> Result<Letters, Error> {
        Letters::open(self.client.clone(), self.dead_letters.clone()).await
    }
}

idem_messages::broker_methods!(Source, Received);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("queue", &self.queue)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
