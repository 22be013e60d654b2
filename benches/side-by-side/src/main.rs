//! Measures the cost of a call: with this library, with code by hand over the same client, with the crate
//! `idempotent` where it supports the store, and without idempotency. Also measures the cost of a request to
//! a server, and of a message. This program starts its own servers and prints tables in Markdown.

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

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use idem_test_servers::meter::Meter;
use serde_json::{Value, json};

use arm::{Anything, Contest};
use measure::{Figures, Kind, Plan};

/// Measures calls on each store. The compared ways to make a call (the arms) take turns.
#[derive(Debug, Parser)]
struct Arguments {
    /// Measure only these stores; `http` and `messages` count as stores.
    #[arg(long, value_parser = CONTESTS.map(|(name, _)| name), value_delimiter = ',')]
    store: Vec<String>,
    /// Measure only the arms whose name contains this text.
    #[arg(long, default_value = "")]
    arm: String,
    /// How many results each arm records before the measurement. Replays return these results.
    #[arg(long, default_value_t = 1_000)]
    kept: usize,
    /// The time for which each arm is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Writes the figures to this file too: a list of objects, one for each line of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

type Begin = fn() -> Anything<Contest>;

/// What the program can measure, by the names that `--store` accepts.
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
    let (arguments, mut lines) = (Arguments::parse(), Vec::new());
    for (store, contest) in CONTESTS {
        if arguments.store.is_empty() || arguments.store.iter().any(|name| name == store) {
            tell(store, &contest()?, &arguments, &mut lines).await?;
        }
    }
    if let Some(file) = arguments.json {
        std::fs::write(file, Value::from(lines).to_string())?;
    }
    Ok(())
}

async fn tell(store: &str, contest: &Contest, arguments: &Arguments, lines: &mut Vec<Value>) -> Anything<()> {
    let time = Duration::from_millis(arguments.millis);
    let plan = Plan { rounds: arguments.rounds, time, kept: arguments.kept.max(1) };
    println!("\n## {}\n", contest.store);
    let mut arms = (contest.connect)(contest.url.clone()).await?;
    arms.retain(|arm| arm.name.contains(&arguments.arm));
    measure::keep(&arms, plan.kept).await?;
    for (kind, callers) in
        [(Kind::Fresh, 1), (Kind::Fresh, 64), (Kind::Replay, 1), (Kind::Replay, 64), (Kind::Work, 50)]
    {
        lines.extend(print(store, kind, callers, &measure::arms(&arms, kind, callers, plan).await?));
    }
    match contest.port {
        Some(port) => traffic(contest, port).await,
        None => Ok(()),
    }
}

/// Prints the table of one kind of work, and returns its lines. All arms are compared with the first one:
/// code by hand over the same client, or the same work without this library.
fn print(store: &str, kind: Kind, callers: usize, arms: &[(&'static str, Figures)]) -> Vec<Value> {
    let Some((_, first)) = arms.first() else { return Vec::new() };
    let work = match kind {
        Kind::Fresh => "fresh",
        Kind::Replay => "replay",
        Kind::Work => "work_50ms",
    };
    println!("| {work}, {callers} at once | calls/s | of the first | p50 us | p99 us |");
    println!("|---|---:|---:|---:|---:|");
    let line = |(arm, Figures { per_second, p50, p99 }): &(&str, Figures)| {
        let [p50, p99] = [p50, p99].map(|time| time.as_secs_f64() * 1e6);
        let ratio = per_second / first.per_second;
        println!("| {arm} | {per_second:.0} | {ratio:.2} | {p50:.1} | {p99:.1} |");
        json!({
            "store": store, "work": work, "callers": callers, "arm": arm, "calls_per_s": per_second,
            "of_first": ratio, "p50_us": p50, "p99_us": p99,
        })
    };
    let lines = arms.iter().map(line).collect();
    println!();
    lines
}

/// Prints how many round trips and bytes a call of each arm needs.
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
