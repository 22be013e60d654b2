//! A queue as a source of messages.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::QueueAttributeName;
use idem_messages::{Broker, GroupBy, Plan, Redrive};
use tokio::sync::mpsc::unbounded_channel;

use crate::Error;
use crate::deletes::delete_all;
use crate::letters;
use crate::received::{Received, Shared};
use crate::taking::{Taking, number};

/// How long one request waits for messages, unless set. This time is short, because the shutdown waits for
/// the request.
const WAIT: Duration = Duration::from_secs(5);

/// The longest wait that SQS allows.
const LONGEST_WAIT: Duration = Duration::from_secs(20);

/// The messages of an SQS queue, standard or FIFO.
///
/// The source does not create the queues. See the [crate](crate) for how messages are settled, and for the
/// limits of SQS.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    client: Client,
    queue: String,
    dead_letters: String,
    group_by: GroupBy<Received>,
    wait: Duration,
}

impl Source {
    /// `queue` and `dead_letters` are URLs. Rejected messages go to `dead_letters`, which must be a FIFO
    /// queue if `queue` is one.
    ///
    /// The program needs `sqs:ReceiveMessage`, `DeleteMessage`, `ChangeMessageVisibility` and
    /// `GetQueueAttributes` on `queue`, and `SendMessage` on `dead_letters`. For [`redrive`](Self::redrive)
    /// it also needs the first four of these permissions on `dead_letters`, and `SendMessage` and
    /// `GetQueueUrl` on the queues that the messages came from.
    pub fn new(client: Client, queue: impl Into<String>, dead_letters: impl Into<String>) -> Self {
        let (queue, dead_letters) = (queue.into(), dead_letters.into());
        Self { client, queue, dead_letters, group_by: None, wait: WAIT }
    }

    /// How long one request waits for messages; 5 s unless set, at most 20 s. The shutdown waits for the open
    /// request, and makes its messages visible again at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait.min(LONGEST_WAIT);
        self
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Taking;

    async fn connect(self, plan: &mut Plan) -> Result<Taking, Error> {
        let Self { client, queue, dead_letters, wait, .. } = self;
        let seconds = async |name| number(&client, &queue, name).await.map(Duration::from_secs);
        let visibility = seconds(QueueAttributeName::VisibilityTimeout).await?;
        if visibility.is_zero() {
            return Err(Error::new("use the queue", "its visibility timeout must not be 0"));
        }
        let retention = seconds(QueueAttributeName::MessageRetentionPeriod).await?;
        plan.extend_every.get_or_insert(visibility / 3);
        plan.redelivery_horizon.get_or_insert(retention);
        let (deletes, coming) = unbounded_channel();
        // This task ends when the reader and the last message are dropped, because they hold the sender.
        tokio::spawn(delete_all(client.clone(), queue.clone(), coming));
        let shared = Arc::new(Shared { client, queue, dead_letters, visibility, deletes });
        Ok(Taking::new(shared, wait))
    }

    async fn redrive_letters(&self, redrive: &mut Redrive) -> Result<(), Error> {
        letters::redrive(&self.client, &self.dead_letters, redrive).await
    }
}

idem_messages::broker_methods!(Source, Received, aws_sdk_sqs::types::Message);
