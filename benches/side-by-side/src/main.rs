//! Measures the cost of a call: with this library, at the store's own limit, with the crate that people would use
//! instead, and without idempotency; and of a request to a server, and a message. It starts its own servers and prints
//! tables in Markdown.

mod arm;
mod dynamodb;
mod http;
mod idempotent;
mod measure;
mod memory;
mod messages;
mod mysql;
mod on_nats_kv;
mod on_object;
mod on_redis;
mod postgres;
mod sqlite;

use std::time::Duration;

use clap::Parser;
use idem_test_servers::meter::Meter;

use arm::{Anything, Contest};
use measure::{Figures, Kind, Plan};

/// Measures calls on each store in one run, in which the ways to make them take turns.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these stores, or `http` or `messages`.
    #[arg(long, value_parser = CONTESTS.map(|(name, _)| name), value_delimiter = ',')]
    store: Vec<String>,
    /// Only the ways whose name contains this text.
    #[arg(long, default_value = "")]
    arm: String,
    /// The number of results that each way has recorded before it is measured, and that are replayed.
    #[arg(long, default_value_t = 1_000)]
    kept: usize,
    /// The time for which each way is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

type Begin = fn() -> Anything<Contest>;

/// What is measured, by the names that `--store` takes.
const CONTESTS: [(&str, Begin); 10] = [
    ("memory", memory::contest),
    ("sqlite", sqlite::contest),
    ("redis", on_redis::contest),
    ("postgres", postgres::contest),
    ("mysql", mysql::contest),
    ("dynamodb", dynamodb::contest),
    ("nats-kv", on_nats_kv::contest),
    ("object", on_object::contest),
    ("http", http::contest),
    ("messages", messages::contest),
];

#[tokio::main]
async fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    for (store, contest) in CONTESTS {
        if arguments.store.is_empty() || arguments.store.iter().any(|name| name == store) {
            tell(&contest()?, &arguments).await?;
        }
    }
    Ok(())
}

async fn tell(contest: &Contest, arguments: &Arguments) -> Anything<()> {
    let time = Duration::from_millis(arguments.millis);
    let plan = Plan { rounds: arguments.rounds, time, kept: arguments.kept.max(1) };
    println!("\n## {}\n", contest.store);
    let mut arms = (contest.connect)(contest.url.clone()).await?;
    arms.retain(|arm| arm.name.contains(&arguments.arm));
    measure::keep(&arms, plan.kept).await?;
    for (kind, callers) in
        [(Kind::Fresh, 1), (Kind::Fresh, 64), (Kind::Replay, 1), (Kind::Replay, 64), (Kind::Work, 50)]
    {
        print(kind, callers, &measure::arms(&arms, kind, callers, plan).await?);
    }
    match contest.port {
        Some(port) => traffic(contest, port).await,
        None => Ok(()),
    }
}

/// Prints the table of one kind of work. The first arm is the limit for this library: code by hand over the same client.
fn print(kind: Kind, callers: usize, arms: &[(&'static str, Figures)]) {
    let Some((_, first)) = arms.first() else { return };
    println!("| {kind:?}, {callers} at once | calls/s | of the first | p50 us | p99 us |");
    println!("|---|---:|---:|---:|---:|");
    for (arm, Figures { per_second, p50, p99 }) in arms {
        let (ratio, p50, p99) =
            (per_second / first.per_second, p50.as_secs_f64() * 1e6, p99.as_secs_f64() * 1e6);
        println!("| {arm} | {per_second:.0} | {ratio:.2} | {p50:.1} | {p99:.1} |");
    }
    println!();
}

/// Prints what the arms exchange with their server.
async fn traffic(contest: &Contest, port: u16) -> Anything<()> {
    let meter = Meter::before(port).await?;
    let url = contest.url.replace(&port.to_string(), &meter.port.to_string());
    let arms = (contest.connect)(url).await?;
    println!("| said to the server | round trips fresh | bytes fresh | round trips replay | bytes replay |");
    println!("|---|---:|---:|---:|---:|");
    for (name, fresh, replay) in measure::said(&arms, &meter).await? {
        let (trips, bytes) = (fresh.round_trips, fresh.bytes);
        println!("| {name} | {trips:.2} | {bytes:.0} | {:.2} | {:.0} |", replay.round_trips, replay.bytes);
    }
    println!();
    Ok(())
}
