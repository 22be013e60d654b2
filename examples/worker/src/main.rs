//! Ships the orders of a queue, each once, on a broker of your choice.
//!
//! `cargo run -p worker -- --broker nats|rabbitmq|kafka|sqs [--url URL] [--redis redis://127.0.0.1:6379]`
//!
//! `--dead-letters` lists the messages that were set aside. `--redrive` lists them and sends them back to
//! `orders`; with `--forget`, calls that failed for good run again too. With `--dead-letters` or `--redrive`,
//! the program handles no orders, and ends after this work.
//!
//! A message is an order: `{"id": 42, "pieces": 3}`. Two queues must exist: `orders`, and `orders-dead` for
//! messages that can never be handled. On NATS, they are streams, and `orders` has a pull consumer
//! `shippers`. On Kafka, they are topics, and a third topic `orders-retry` must exist. SQS takes its region,
//! credentials and endpoint from the environment.

use std::error::Error;
use std::io;

use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use clap::{Parser, ValueEnum};
use idem::message::{Consumer, Disposition, Reason, Redrive};
use idem::{RedisStore, idempotent};
use rdkafka::{ClientConfig, Message as _};
use serde::{Deserialize, Serialize};

/// How many orders are shipped at a time.
const CONCURRENCY: usize = 10;

#[derive(Parser)]
struct Options {
    /// The broker.
    #[arg(long, value_enum)]
    broker: Broker,
    /// The broker's address; its usual port on this machine unless given.
    #[arg(long)]
    url: Option<String>,
    /// The Redis server of the results.
    #[arg(long, default_value = "redis://127.0.0.1:6379")]
    redis: String,
    /// List the dead letters.
    #[arg(long)]
    dead_letters: bool,
    /// List the dead letters and send them back.
    #[arg(long)]
    redrive: bool,
    /// With `--redrive`: forget the records of calls that failed for good.
    #[arg(long)]
    forget: bool,
}

impl Options {
    /// What to do with the dead letters.
    fn letters(&self, store: &RedisStore) -> Option<Redrive> {
        let goes_back = self.redrive;
        let redrive = Redrive::matching(move |letter| {
            println!("{letter}");
            goes_back
        });
        let redrive = if self.forget { redrive.forgetting(store) } else { redrive };
        (self.dead_letters || self.redrive).then_some(redrive)
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Broker {
    Nats,
    Rabbitmq,
    Kafka,
    Sqs,
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    pieces: u32,
}

#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error("the message is not an order: {0}")]
    NotAnOrder(#[from] serde_json::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

/// Results are kept for as long as the broker may deliver a message again.
#[idempotent(key = "order/{order.id}", scope = "orders.ship", fingerprint = order.pieces, ttl = "14d", store = store)]
async fn ship(store: &RedisStore, order: &Order) -> Result<String, ShipError> {
    // Ship the order here. Give the carrier `context().downstream_key("carrier")`, which is the same at every
    // attempt.
    println!("ships order {}", order.id);
    Ok(format!("parcel of order {} with {} pieces", order.id, order.pieces))
}

async fn handle(store: &RedisStore, order: serde_json::Result<Order>) -> Result<String, ShipError> {
    ship(store, &order?).await
}

/// A message that is not an order goes to the dead letters at once. After any other error, the message is
/// settled as the consumer proposes.
fn dispose(error: &ShipError, _attempt: u32, proposed: Disposition) -> Disposition {
    match error {
        ShipError::NotAnOrder(_) => Disposition::reject(Reason::Terminal),
        ShipError::Idem(_) => proposed,
    }
}

/// The summary of the work, or of the redrive.
type Finished = Result<String, Box<dyn Error + Send + Sync>>;

/// The store, and what to do with the dead letters. If `letters` is `None`, the program handles the orders.
struct Work {
    store: RedisStore,
    letters: Option<Redrive>,
}

async fn on_nats(url: &str, work: Work, shutdown: impl Future<Output = ()>) -> Finished {
    let jetstream = async_nats::jetstream::new(async_nats::connect(url).await?);
    let shippers = jetstream.get_consumer_from_stream("shippers", "orders").await?;
    let consumer = Consumer::new().concurrency(CONCURRENCY).dispose(dispose);
    let source = idem_nats::Source::new(jetstream, shippers, "orders-dead");
    if let Some(redrive) = work.letters {
        return Ok(format!("{:?}", source.redrive(redrive).await?));
    }
    let handler =
        |message: &idem_nats::Received| handle(&work.store, serde_json::from_slice(&message.payload));
    Ok(format!("{:?}", source.run_until(shutdown, consumer, handler).await?))
}

async fn on_rabbitmq(url: &str, work: Work, shutdown: impl Future<Output = ()>) -> Finished {
    let consumer = Consumer::new().concurrency(CONCURRENCY).dispose(dispose);
    let source = idem_rabbitmq::Source::new(url, "orders", "orders-dead");
    if let Some(redrive) = work.letters {
        return Ok(format!("{:?}", source.redrive(redrive).await?));
    }
    let handler =
        |message: &idem_rabbitmq::Received| handle(&work.store, serde_json::from_slice(&message.data));
    Ok(format!("{:?}", source.run_until(shutdown, consumer, handler).await?))
}

async fn on_kafka(servers: &str, work: Work, shutdown: impl Future<Output = ()>) -> Finished {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", servers).set("group.id", "shippers").set("auto.offset.reset", "earliest");
    let consumer = Consumer::new().concurrency(CONCURRENCY).dispose(dispose);
    let source = idem_kafka::Source::new(config, ["orders"], "orders-dead").retry_topic("orders-retry");
    if let Some(redrive) = work.letters {
        return Ok(format!("{:?}", source.redrive(redrive).await?));
    }
    let handler = |message: &idem_kafka::Received| {
        handle(&work.store, serde_json::from_slice(message.payload().unwrap_or_default()))
    };
    Ok(format!("{:?}", source.run_until(shutdown, consumer, handler).await?))
}

async fn on_sqs(work: Work, shutdown: impl Future<Output = ()>) -> Finished {
    let tls = tls::Provider::Rustls(CryptoMode::Ring);
    let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    let config = aws_config::defaults(aws_config::BehaviorVersion::latest()).http_client(http).load().await;
    let client = aws_sdk_sqs::Client::new(&config);
    let queue = async |name: &str| {
        let queue = client.get_queue_url().queue_name(name).send().await?;
        queue.queue_url.ok_or_else(|| Box::<dyn Error + Send + Sync>::from("SQS sent no URL"))
    };
    let (orders, dead_letters) = (queue("orders").await?, queue("orders-dead").await?);
    let consumer = Consumer::new().concurrency(CONCURRENCY).dispose(dispose);
    let source = idem_sqs::Source::new(client, orders, dead_letters);
    if let Some(redrive) = work.letters {
        return Ok(format!("{:?}", source.redrive(redrive).await?));
    }
    let handler = |message: &idem_sqs::Received| {
        handle(&work.store, serde_json::from_str(message.body().unwrap_or_default()))
    };
    Ok(format!("{:?}", source.run_until(shutdown, consumer, handler).await?))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let options = Options::parse();
    let (store, shutdown) = (RedisStore::connect(&options.redis).await?, idem::terminated());
    let work = Work { letters: options.letters(&store), store };
    let url = |usual: &'static str| options.url.clone().unwrap_or_else(|| usual.to_owned());
    let summary = match options.broker {
        Broker::Nats => on_nats(&url("127.0.0.1:4222"), work, shutdown).await?,
        Broker::Rabbitmq => on_rabbitmq(&url("amqp://127.0.0.1:5672/%2f"), work, shutdown).await?,
        Broker::Kafka => on_kafka(&url("127.0.0.1:9092"), work, shutdown).await?,
        Broker::Sqs => on_sqs(work, shutdown).await?,
    };
    eprintln!("{summary}");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_catalogue_is_as_it_was_committed() {
        idem_testing::assert_catalogue("idem.catalogue");
    }
}
