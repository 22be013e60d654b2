//! `PostgresStore` beside what one would write by hand, on one server, in alternating rounds.
//!
//! By hand: `INSERT .. ON CONFLICT DO NOTHING` and a guarded `UPDATE` for a fresh call, a bare `SELECT`
//! for a replay, on a pool of 16 that does not ping. The server waits for the disk.

mod contest;
mod hand;

use std::time::Duration;

use clap::Parser;
use idem::{Operation, PostgresStore};
use idem_test_servers::Postgres;

use contest::{Contest, Figures};
use hand::Hand;

/// Measures `PostgresStore` against statements written by hand.
#[derive(Debug, Parser)]
struct Arguments {
    /// How long each side is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 1_500)]
    millis: u64,
    /// How many rounds.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many connections the store has.
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Only what begins with this: fresh, replay or work.
    #[arg(long, default_value = "")]
    only: String,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn fresh(store: PostgresStore, operation: Operation, key: String) -> Result<(), Failure> {
    operation.run(&store, key, || async { Ok::<_, idem::Error>("a receipt".to_owned()) }).await?;
    Ok(())
}

async fn replay(store: PostgresStore, operation: Operation, key: String) -> Result<(), Failure> {
    let replayed = operation.run(&store, key, || async { Ok::<_, idem::Error>(String::new()) }).await?;
    if replayed.is_empty() { Err("the body ran".into()) } else { Ok(()) }
}

/// Fifty milliseconds of work.
async fn work() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn working(store: PostgresStore, operation: Operation, key: String) -> Result<(), Failure> {
    let body = || async {
        work().await;
        Ok::<_, idem::Error>("a receipt".to_owned())
    };
    operation.run(&store, key, body).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = Arguments::parse();
    let server = Postgres::with(&[]);
    let store = PostgresStore::builder(&server.url()).connections(arguments.connections).connect().await?;
    let hand = Hand::new(&server.url()).await?;
    let operation = Operation::new("bench.pay");
    let contest = Contest { rounds: arguments.rounds, time: Duration::from_millis(arguments.millis) };
    let wanted = |name: &str| name.starts_with(&arguments.only);

    const KEPT: usize = 10_000;
    for number in 0..KEPT / 50 {
        let range = number * 50..(number + 1) * 50;
        let filled = range.map(|key| {
            let (store, operation, hand) = (store.clone(), operation.clone(), hand.clone());
            tokio::spawn(async move {
                fresh(store, operation, format!("kept/{key}")).await?;
                hand.pay(format!("kept/{key}")).await
            })
        });
        for filled in filled.collect::<Vec<_>>() {
            filled.await??;
        }
    }

    println!(
        "{:<8} {:>7}  {:>22}  {:>22}  ratio",
        "", "callers", "idem /s (p50, p99)", "by hand /s (p50, p99)"
    );
    for callers in [1, 64] {
        if wanted("fresh") {
            let (store, operation) = (store.clone(), operation.clone());
            let ours = move |key: String| fresh(store.clone(), operation.clone(), key);
            let hand = hand.clone();
            let theirs = move |key: String| hand.clone().pay(key);
            let name = move |number: usize| format!("fresh/{callers}/{number}");
            tell("fresh", callers, &contest.run(callers, name, ours, theirs).await?);
        }
        if wanted("replay") {
            let (store, operation) = (store.clone(), operation.clone());
            let ours = move |key: String| replay(store.clone(), operation.clone(), key);
            let hand = hand.clone();
            let theirs = move |key: String| hand.clone().look(key);
            let name = |number: usize| format!("kept/{}", number.wrapping_mul(7_919) % KEPT);
            tell("replay", callers, &contest.run(callers, name, ours, theirs).await?);
        }
    }
    if wanted("work") {
        let (store, operation) = (store.clone(), operation.clone());
        let ours = move |key: String| working(store.clone(), operation.clone(), key);
        let theirs = |_: String| async {
            work().await;
            Ok(())
        };
        let name = |number: usize| format!("work/{number}");
        tell("work", 50, &contest.run(50, name, ours, theirs).await?);
    }
    Ok(())
}

fn tell(what: &str, callers: usize, [ours, theirs]: &[Figures; 2]) {
    let ratio = ours.rate() / theirs.rate();
    println!("{what:<8} {callers:>7}  {:>22}  {:>22}  {ratio:.2}", ours.to_string(), theirs.to_string());
}
