//! What a call costs: this library beside the store's own limit, the crates that people would take instead,
//! and nothing at all. It starts its own servers and prints tables in Markdown.

mod arm;
mod idempotent;
mod measure;
mod memory;
mod meter;
mod on_dynamodb;
mod on_postgres;
mod on_redis;
mod sqlite;

use std::time::Duration;

use clap::{Parser, ValueEnum};

use arm::{Anything, Contest};
use measure::{Figures, Kind, Plan};

/// Measures calls on each store, in one run, the ways to make them in turns.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these stores.
    #[arg(long, value_enum, value_delimiter = ',')]
    store: Vec<StoreKind>,
    /// How long each way is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum StoreKind {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    Dynamodb,
}

impl StoreKind {
    async fn contest(self) -> Anything<Contest> {
        match self {
            Self::Memory => Ok(memory::contest()),
            Self::Sqlite => sqlite::contest(),
            Self::Redis => on_redis::contest().await,
            Self::Postgres => on_postgres::contest().await,
            Self::Dynamodb => on_dynamodb::contest().await,
        }
    }
}

#[tokio::main]
async fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    let plan = Plan { rounds: arguments.rounds, time: Duration::from_millis(arguments.millis) };
    for kind in StoreKind::value_variants() {
        if arguments.store.is_empty() || arguments.store.contains(kind) {
            tell(kind.contest().await?, plan).await?;
        }
    }
    Ok(())
}

async fn tell(contest: Contest, plan: Plan) -> Anything<()> {
    println!("\n## {}\n", contest.store);
    measure::keep(&contest.arms).await?;
    for (kind, what) in [(Kind::Fresh, "Fresh call"), (Kind::Replay, "Replay")] {
        for tasks in [1, 64] {
            table(what, tasks, &measure::arms(&contest, kind, tasks, plan).await?);
        }
    }
    table("Fifty milliseconds of work", 50, &measure::arms(&contest, Kind::Work, 50, plan).await?);
    let said = measure::said(&contest).await?;
    if !said.is_empty() {
        println!(
            "| said to the server | round trips fresh | bytes fresh | round trips replay | bytes replay |"
        );
        println!("|---|---:|---:|---:|---:|");
        for (name, fresh, replay) in said {
            let cells = [fresh.round_trips, fresh.bytes, replay.round_trips, replay.bytes];
            let [trips, bytes, replay_trips, replay_bytes] = cells;
            println!("| {name} | {trips:.2} | {bytes:.0} | {replay_trips:.2} | {replay_bytes:.0} |");
        }
        println!();
    }
    Ok(())
}

fn table(what: &str, tasks: usize, arms: &[(&'static str, Figures)]) {
    println!(
        "| {what}, {tasks} at once | calls/s | of the first | p50 us | p99 us | client us | server us |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    let first = arms.first().map_or(1.0, |(_, figures)| figures.per_second);
    for (name, figures) in arms {
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} | {:.1} | {:.1} | {:.1} |",
            figures.per_second,
            figures.per_second / first,
            figures.p50.as_nanos() as f64 / 1_000.0,
            figures.p99.as_nanos() as f64 / 1_000.0,
            figures.client,
            figures.server,
        );
    }
    println!();
}
