//! Measures the cost of a call: with this library, at the store's own limit, with the crates that people would use
//! instead, and without idempotency. It starts its own servers and prints tables in Markdown.

mod arm;
mod idempotent;
mod measure;
mod memory;
mod on_dynamodb;
mod on_mysql;
mod on_nats_kv;
mod on_object;
mod on_postgres;
mod on_redis;
mod report;
mod sqlite;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use arm::{Anything, Contest};
use measure::{Kind, Plan};
use report::Report;

/// Measures calls on each store in one run, in which the ways to make them take turns.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these stores.
    #[arg(long, value_enum, value_delimiter = ',')]
    store: Vec<StoreKind>,
    /// The time for which each way is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// The number of rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Writes the figures to this file too: a list of objects, one for each line of the tables.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum StoreKind {
    Memory,
    Sqlite,
    Redis,
    Postgres,
    Mysql,
    Dynamodb,
    NatsKv,
    Object,
}

impl StoreKind {
    /// The name that `--store` takes.
    const fn word(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite => "sqlite",
            Self::Redis => "redis",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Dynamodb => "dynamodb",
            Self::NatsKv => "nats-kv",
            Self::Object => "object",
        }
    }

    async fn contest(self) -> Anything<Contest> {
        match self {
            Self::Memory => Ok(memory::contest()),
            Self::Sqlite => sqlite::contest(),
            Self::Redis => on_redis::contest().await,
            Self::Postgres => on_postgres::contest().await,
            Self::Mysql => on_mysql::contest().await,
            Self::Dynamodb => on_dynamodb::contest().await,
            Self::NatsKv => on_nats_kv::contest().await,
            Self::Object => on_object::contest().await,
        }
    }
}

#[tokio::main]
async fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    let plan = Plan { rounds: arguments.rounds, time: Duration::from_millis(arguments.millis) };
    let mut report = Report::default();
    for kind in StoreKind::value_variants() {
        if arguments.store.is_empty() || arguments.store.contains(kind) {
            tell(kind.word(), kind.contest().await?, plan, &mut report).await?;
        }
    }
    arguments.json.map_or(Ok(()), |file| report.write(&file))
}

async fn tell(store: &'static str, contest: Contest, plan: Plan, report: &mut Report) -> Anything<()> {
    println!("\n## {}\n", contest.store);
    measure::keep(&contest.arms).await?;
    for (kind, callers) in
        [(Kind::Fresh, 1), (Kind::Fresh, 64), (Kind::Replay, 1), (Kind::Replay, 64), (Kind::Work, 50)]
    {
        let arms = measure::arms(&contest, kind, callers, plan).await?;
        report.add(store, kind, callers, &arms);
    }
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
