//! Measures the cost of the attribute in a loop over messages: `message::Consumer` with handlers that count in Redis,
//! without the attribute, with it, with an overlap, with an overlap and handlers in their own tasks, and with messages
//! that are all duplicates. One server, one process, one run.
//!
//! `cargo run --release -p idem-message-cost [MESSAGES]`. The arms take turns in short rounds, so that other load on
//! the machine affects all of them equally. It prints the median of the rounds and its ratio. The broker is a stream in
//! this process that costs nothing, so only the loop and the store are measured.

use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

use futures_util::stream;
use idem::message::{Consumer, Delivery, Reason, in_tasks};
use idem::{RedisStore, idempotent};
use idem_test_servers::Redis;
use redis::aio::MultiplexedConnection;

const CONCURRENCY: [usize; 2] = [1, 64];
/// How many handlers claim or record beside those whose bodies run.
const OVERLAP: usize = 64;
const ROUNDS: usize = 9;

type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A message of a broker that accepts any disposition.
struct Message(u64);

impl Delivery for Message {
    type Error = Infallible;

    async fn acknowledge(self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn retry(self, _: Duration) -> Result<(), Infallible> {
        Ok(())
    }

    async fn reject(self, _: Reason) -> Result<(), Infallible> {
        Ok(())
    }

    async fn give_back(self) -> Result<(), Infallible> {
        Ok(())
    }
}

#[derive(Clone)]
struct Shop {
    store: RedisStore,
    connection: MultiplexedConnection,
}

#[derive(Debug)]
enum Failure {
    Redis,
    Idem,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis => "Redis failed",
            Self::Idem => "the call failed",
        })
    }
}

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self::Idem
    }
}

/// The effect of a handler: one command.
async fn count(shop: &Shop) -> Result<u64, Failure> {
    let mut connection = shop.connection.clone();
    redis::cmd("INCR").arg("effects").query_async(&mut connection).await.map_err(|_| Failure::Redis)
}

#[idempotent(key = "order/{order}", scope = "cost", store = shop.store, ttl = "1h")]
async fn count_once(shop: &Shop, order: u64) -> Result<u64, Failure> {
    count(shop).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Arm {
    Without,
    With,
    Overlap,
    InTasks,
    Duplicates,
}

impl Arm {
    const ALL: [Self; 5] = [Self::Without, Self::With, Self::Overlap, Self::InTasks, Self::Duplicates];

    const fn name(self) -> &'static str {
        match self {
            Self::Without => "without the attribute",
            Self::With => "with it",
            Self::Overlap => "with an overlap",
            Self::InTasks => "the same, in tasks",
            Self::Duplicates => "with it, all duplicates",
        }
    }
}

/// Returns the messages handled in a second.
async fn measure(shop: &Shop, arm: Arm, concurrency: usize, orders: std::ops::Range<u64>) -> Anything<f64> {
    let count_of = orders.end - orders.start;
    let messages = stream::iter(orders.map(Message));
    let consumer = Consumer::new().concurrency(concurrency);
    let begin = Instant::now();
    let summary = match arm {
        Arm::Without => consumer.run(messages, |_| count(shop)).await,
        Arm::With | Arm::Duplicates => consumer.run(messages, |message| count_once(shop, message.0)).await,
        Arm::Overlap => consumer.overlap(OVERLAP).run(messages, |message| count_once(shop, message.0)).await,
        Arm::InTasks => {
            let handler = |message: &Message| {
                let (shop, order) = (shop.clone(), message.0);
                async move { count_once(&shop, order).await }
            };
            consumer.overlap(OVERLAP).run(messages, in_tasks(handler)).await
        }
    };
    let elapsed = begin.elapsed().as_secs_f64();
    let replayed = if arm == Arm::Duplicates { count_of } else { 0 };
    if (summary.acknowledged, summary.replayed) != (count_of, replayed) {
        return Err(format!("not what it should be: {summary:?}").into());
    }
    #[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
    Ok(count_of as f64 / elapsed)
}

#[tokio::main]
async fn main() -> Anything<()> {
    let messages: u64 = std::env::args().nth(1).map_or(Ok(5_000), |text| text.parse())?;
    let redis = Redis::start();
    let connection = redis::Client::open(redis.url())?.get_multiplexed_async_connection().await?;
    let shop = Shop { store: RedisStore::connect(&redis.url()).await?, connection };
    let mut next = 0;
    for concurrency in CONCURRENCY {
        // Fewer, so that one at a time takes no longer.
        let messages = if concurrency == 1 { messages / 5 } else { messages };
        let mut rounds = vec![Vec::new(); Arm::ALL.len()];
        for _ in 0..ROUNDS {
            for (arm, rounds) in Arm::ALL.into_iter().zip(&mut rounds) {
                // The duplicates repeat the messages of the previous round, which had the attribute.
                let first = if arm == Arm::Duplicates { next - messages } else { next };
                rounds.push(measure(&shop, arm, concurrency, first..first + messages).await?);
                next = first + messages;
            }
        }
        println!("{concurrency} at a time");
        let mut without = None;
        for (arm, mut rounds) in Arm::ALL.into_iter().zip(rounds) {
            rounds.sort_by(f64::total_cmp);
            let middle = rounds[ROUNDS / 2];
            let without = *without.get_or_insert(middle);
            println!("  {:<24} {middle:>9.0} messages/s {:>6.2}", arm.name(), middle / without);
        }
    }
    Ok(())
}
