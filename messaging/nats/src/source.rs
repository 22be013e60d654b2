//! A pull consumer as a source of messages.

use std::sync::Arc;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, PullConsumer};
use idem_messages::{Broker, GroupBy, Plan, Redrive};

use crate::Error;
use crate::letters;
use crate::received::{Received, Shared};
use crate::taking::Taking;

/// The messages of a JetStream pull consumer.
///
/// The source does not create the stream, the consumer or the stream of the dead letters. Create them with
/// async-nats or an operator's tool. See the [crate](crate) for how messages are settled, and for JetStream's
/// limits.
#[must_use = "a source does nothing until it is `run`"]
pub struct Source {
    jetstream: Context,
    consumer: PullConsumer,
    dead_letters: String,
    group_by: GroupBy<Received>,
}

impl Source {
    /// `dead_letters` is the subject that rejected messages go to. A rejected message is acknowledged only
    /// after a stream has stored its dead letter. If no stream has that subject, the message stays in its own
    /// stream.
    pub fn new(jetstream: Context, consumer: PullConsumer, dead_letters: impl Into<String>) -> Self {
        let dead_letters = dead_letters.into();
        Self { jetstream, consumer, dead_letters, group_by: None }
    }
}

impl Broker for Source {
    type Message = Received;
    type Reader = Taking;

    async fn connect(self, plan: &mut Plan) -> Result<Taking, Error> {
        let Self { jetstream, consumer: pull, dead_letters, .. } = self;
        let info = pull.cached_info();
        if info.config.ack_policy != AckPolicy::Explicit {
            return Err(Error::new("use the consumer", "its ack_policy must be `AckPolicy::Explicit`"));
        }
        let shortest = info.config.backoff.iter().copied().chain([info.config.ack_wait]).min();
        if let Some(ack_wait) = shortest.filter(|wait| !wait.is_zero()) {
            plan.extend_every.get_or_insert(ack_wait / 3);
        }
        let stream = jetstream.get_stream(&info.stream_name).await;
        let max_age = stream.map_err(Error::at("read the stream's settings"))?.cached_info().config.max_age;
        if !max_age.is_zero() {
            plan.redelivery_horizon.get_or_insert(max_age);
        }
        let (consumer, max_deliver) =
            (info.name.clone(), Some(info.config.max_deliver).filter(|limit| *limit > 0));
        let shared = Arc::new(Shared { jetstream, dead_letters, consumer, max_deliver });
        Ok(Taking { consumer: pull, shared, batch: None })
    }

    async fn redrive_letters(&self, redrive: &mut Redrive) -> Result<(), Error> {
        letters::redrive(&self.jetstream, &self.dead_letters, redrive).await
    }
}

idem_messages::broker_methods!(Source, Received, async_nats::jetstream::Message);
