//! Measures the cost of the attribute in a loop over messages: `message::Consumer` with handlers that count in Redis,
//! without the attribute, with it, with handlers in their own tasks, and with messages that are all duplicates. One server of each kind, one process, one run.
//!
//! `cargo run --release -p idem-message-cost [MESSAGES] [--broker stream|nats]`. The broker is a stream in this process
//! that costs nothing, so only the loop and the store are measured; then NATS JetStream. The arms take turns in short
//! rounds, so that other load on the machine affects all of them equally. It prints the median of the rounds and its
//! ratio.

mod in_process;
mod measure;
mod on_nats;
mod shop;

use clap::{Parser, ValueEnum};
use idem_test_servers::Redis;

use in_process::InProcess;
use measure::{Arm, Broker, Orders};
use on_nats::OnNats;
use shop::{Anything, Shop};

const CONCURRENCY: [usize; 2] = [1, 64];

/// Measures what the attribute costs a loop over messages.
#[derive(Debug, Parser)]
struct Arguments {
    /// How many messages each arm handles in each round; one at a time, a fifth of them.
    #[arg(default_value_t = 5_000, value_parser = clap::value_parser!(u64).range(5..))]
    messages: u64,
    /// Only these brokers.
    #[arg(long, value_enum, value_delimiter = ',')]
    broker: Vec<BrokerKind>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum BrokerKind {
    Stream,
    Nats,
}

#[tokio::main]
async fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    let redis = Redis::start();
    let shop = Shop::open(&redis.url()).await?;
    let messages = arguments.messages;
    let mut orders = Orders::default();
    for kind in BrokerKind::value_variants() {
        if arguments.broker.is_empty() || arguments.broker.contains(kind) {
            match kind {
                BrokerKind::Stream => print(&InProcess, &shop, messages, &mut orders).await?,
                BrokerKind::Nats => print(&OnNats::start().await?, &shop, messages, &mut orders).await?,
            }
        }
    }
    Ok(())
}

/// Measures with one broker, and prints the figures.
async fn print<B: Broker>(broker: &B, shop: &Shop, messages: u64, orders: &mut Orders) -> Anything<()> {
    for concurrency in CONCURRENCY {
        // Fewer, so that one at a time takes no longer.
        let messages = if concurrency == 1 { messages / 5 } else { messages };
        let medians = measure::medians(broker, shop, concurrency, messages, orders).await?;
        println!("{}, {concurrency} at a time", B::NAME);
        let without = medians[0];
        for (arm, median) in Arm::ALL.into_iter().zip(medians) {
            println!("  {:<24} {median:>9.0} messages/s {:>6.2}", arm.name(), median / without);
        }
    }
    Ok(())
}
