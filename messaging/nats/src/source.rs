//! A pull consumer as a source of messages.

use std::fmt;
use std::sync::Arc;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use idem_messages::{Broker, GroupBy, Plan};

use crate::Error;
use crate::letters::Letters;
use crate::received::{Received, Shared};
use crate::taking::Taking;

/// The messages of a JetStream pull consumer.
///
/// The source does not create the stream, the consumer and the stream of the dead letters: do that with async-nats or an
/// operator's tool. See the [crate](crate) for what JetStream gets, and its limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    jetstream: Context,
    consumer: PullConsumer,
    dead_letters: String,
    group_by: GroupBy<Received>,
}

impl Source {
    /// `dead_letters` is the subject that rejected messages go to. A rejected message is acknowledged only after a stream has
    /// stored its dead letter; without a stream for that subject the message stays in its own stream.
    pub fn new(jetstream: Context, consumer: PullConsumer, dead_letters: impl Into<String>) -> Self {
        let dead_letters = dead_letters.into();
        Self { jetstream, consumer, dead_letters, group_by: GroupBy::default() }
    }

    /// Checks JetStream's consumer, and reads the settings that follow from it and from its stream.
    async fn fit(&self, plan: &mut Plan) -> Result<(), Error> {
        let info = self.consumer.cached_info();
        if info.config.ack_policy != AckPolicy::Explicit {
            return Err(Error::new("use the consumer", "its ack_policy must be `AckPolicy::Explicit`"));
        }
        let shortest = info.config.backoff.iter().copied().chain([info.config.ack_wait]).min();
        if let Some(ack_wait) = shortest.filter(|wait| !wait.is_zero()) {
            plan.extend_every(ack_wait / 3);
        }
        let stream = self.jetstream.get_stream(&info.stream_name).await;
        let max_age = stream.map_err(Error::at("read the stream's settings"))?.cached_info().config.max_age;
        if !max_age.is_zero() {
            plan.redelivery_horizon(max_age);
        }
        Ok(())
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Taking;
    type Letters = Letters;

    async fn connect(self, plan: &mut Plan) -> Result<Taking, Error> {
        self.fit(plan).await?;
        let Self { jetstream, consumer: pull, dead_letters, .. } = self;
        let info = pull.cached_info();
        let (consumer, max_deliver) =
            (info.name.clone(), Some(info.config.max_deliver).filter(|limit| *limit > 0));
        let shared = Arc::new(Shared { jetstream, dead_letters, consumer, max_deliver });
        Ok(Taking::new(pull, shared, plan.room().clone()))
    }

    async fn letters(&self) -> Result<Letters, Error> {
        Letters::open(self.jetstream.clone(), self.dead_letters.clone()).await
    }
}

idem_messages::broker_methods!(Source, Received);

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let info = self.consumer.cached_info();
        f.debug_struct("Source")
            .field("stream", &info.stream_name)
            .field("consumer", &info.name)
            .field("dead_letters", &self.dead_letters)
            .finish_non_exhaustive()
    }
}
