//! The brokers: how the demo starts each broker, sends messages to it and counts the remaining messages, and
//! how a worker consumes from it.

mod apalis;
mod kafka;
mod lambda;
mod nats;
mod rabbitmq;
mod sqs;

use clap::ValueEnum;
use idem::message::StoredLetter;

pub use apalis::OnApalis;
pub use kafka::OnKafka;
pub use nats::OnNats;
pub use rabbitmq::OnRabbitMq;
pub use sqs::{OnLambda, OnSqs};

use crate::{Failure, Order, Shop};

/// Describes a dead letter that has no headers. Its body decides its reason: `terminal` if the message can
/// never be handled.
fn letter(body: &[u8]) -> StoredLetter {
    let is_healthy = Order::parse(body).is_ok_and(|order| order.pieces > 0);
    StoredLetter::read("", |_| (!is_healthy).then(|| "terminal".to_owned()))
}

/// The name of a broker on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// NATS `JetStream`.
    Nats,
    /// `RabbitMQ`.
    Rabbitmq,
    /// Kafka.
    Kafka,
    /// SQS.
    Sqs,
    /// AWS Lambda on a queue of SQS.
    Lambda,
    /// Jobs of apalis in Redis.
    Apalis,
}

impl Kind {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The options of the broker that the demo starts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Setup {
    /// Whether to use quorum queues, if the broker has them.
    pub quorum: bool,
    /// Whether the broker is killed in the middle of the run. If so, it must keep its messages.
    pub survives: bool,
}

/// A broker that the demo starts, and how its workers consume from it.
pub trait Broker: Sized {
    /// The broker's name on the command line.
    const KIND: Kind;

    /// The store that the demo uses if the command line names none.
    const STORE: &'static str = "redis";

    /// The default time between two kills of a worker, in milliseconds.
    const KILL_EVERY_MS: u64 = 500;

    /// Starts the broker, with a queue `orders` and a queue `orders-dead` for the dead letters.
    fn start(setup: &Setup) -> impl Future<Output = Result<Self, Failure>>;

    /// Kills the broker.
    fn kill(&mut self);

    /// Starts the broker again on the same data, and connects to it.
    fn restart(&mut self) -> impl Future<Output = Result<(), Failure>>;

    /// The address for workers.
    fn address(&self) -> String;

    /// Does a worker's work until `shutdown` ends, in a process of its own.
    fn work(
        address: &str,
        shop: &Shop,
        shutdown: impl Future<Output = ()>,
    ) -> impl Future<Output = Result<(), Failure>>;

    /// Sends each body as a message of its own. The broker must not drop equal bodies as duplicates.
    fn send(&self, bodies: Vec<String>) -> impl Future<Output = Result<(), Failure>>;

    /// The number of unsettled messages, including the messages that a worker holds.
    fn waiting(&self) -> impl Future<Output = Result<u64, Failure>>;

    /// The dead letters. Dead letters of messages that can never be handled have the reason `terminal`.
    fn dead_letters(&self) -> impl Future<Output = Result<Vec<StoredLetter>, Failure>>;
}
