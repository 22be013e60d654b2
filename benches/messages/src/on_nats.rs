//! NATS JetStream as the broker: a server of its own, a stream in its memory.

use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy, StorageType};
use async_nats::jetstream::{self, Context};
use futures_util::{StreamExt as _, TryStreamExt as _};
use idem::message::{Consumer, Summary};
use idem_nats::{Received, Source};
use idem_test_servers::Nats;
use tokio::sync::Notify;

use crate::measure::Broker;
use crate::shop::{Anything, Failure, OrderMessage};

const ORDERS: &str = "orders";
/// No stream is behind it: no message is rejected here, and one that was would not be acknowledged.
const DEAD_LETTERS: &str = "orders-dead";
const ACK_WAIT: Duration = Duration::from_secs(30);
/// More than any arm holds.
const MAX_ACK_PENDING: i64 = 1_000;
/// How many messages are sent before the first of them is confirmed. The client allows no more than 5,000.
const SENT_AT_ONCE: usize = 1_000;

pub(crate) struct OnNats {
    jetstream: Context,
    /// Runs until it is dropped.
    _server: Nats,
}

impl OnNats {
    pub(crate) async fn start() -> Anything<Self> {
        Nats::installed()?;
        let server = Nats::start();
        let jetstream = jetstream::new(async_nats::connect(server.url()).await?);
        Ok(Self { jetstream, _server: server })
    }

    /// A new stream with these orders, all stored, and its consumer.
    async fn send(&self, orders: Range<u64>) -> Anything<PullConsumer> {
        let settings = stream::Config {
            name: ORDERS.to_owned(),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::Memory,
            ..stream::Config::default()
        };
        let stream = self.jetstream.create_stream(settings).await?;
        let sent = futures_util::stream::iter(orders).map(|order| async move {
            self.jetstream.publish(ORDERS, order.to_string().into()).await?.await?;
            Anything::Ok(())
        });
        sent.buffered(SENT_AT_ONCE).try_collect::<()>().await?;
        let settings = pull::Config {
            durable_name: Some("counters".to_owned()),
            ack_wait: ACK_WAIT,
            max_ack_pending: MAX_ACK_PENDING,
            ..pull::Config::default()
        };
        Ok(stream.create_consumer(settings).await?)
    }
}

impl OrderMessage for Received {
    fn order(&self) -> Result<u64, Failure> {
        let text = std::str::from_utf8(&self.payload).map_err(|_| Failure::Message)?;
        text.parse().map_err(|_| Failure::Message)
    }
}

impl Broker for OnNats {
    const NAME: &'static str = "NATS JetStream";
    type Message = Received;

    /// The time is from the start of the source to its end. The shutdown begins when the last handler has ended. The
    /// source then waits until the server has confirmed each acknowledgement, so these are in the time. Beyond that it
    /// flushes the connection: one round trip, and no pause.
    async fn run<H, F>(
        &self,
        orders: Range<u64>,
        consumer: Consumer<Failure>,
        handler: H,
    ) -> Anything<(Summary, Duration)>
    where
        H: Fn(&Received) -> F,
        F: Future<Output = Result<u64, Failure>>,
    {
        let messages = orders.end - orders.start;
        let mut pull = self.send(orders).await?;
        let source = Source::new(self.jetstream.clone(), pull.clone(), DEAD_LETTERS);
        let (ended, all_ended) = (Cell::new(0), Notify::new());
        let counted = |message: &Received| {
            let handled = handler(message);
            async {
                let result = handled.await;
                ended.set(ended.get() + 1);
                if ended.get() == messages {
                    all_ended.notify_one();
                }
                result
            }
        };
        let begin = Instant::now();
        let summary = source.run_until(all_ended.notified(), consumer, counted).await?;
        let elapsed = begin.elapsed();
        let info = pull.info().await?;
        if (info.num_pending, info.num_ack_pending) != (0, 0) {
            return Err(format!("the server still has messages: {info:?}").into());
        }
        self.jetstream.delete_stream(ORDERS).await?;
        Ok((summary, elapsed))
    }
}
