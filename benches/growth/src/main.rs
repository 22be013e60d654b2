//! Measures the cost of a call while the store grows from 10,000 records and expired records are deleted. It starts its
//! own servers, fills each store in its own layout with copies of a record that the store made, and checks that the
//! store replays them. Prints tables in Markdown; with `--write` makes `growth.md` and `growth.svg`.

mod measure;
mod on_postgres;
mod on_redis;
mod on_sqlite;
mod page;
mod plot;
mod subject;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

use measure::{Figures, Kind, Plan};
use subject::{Anything, Subject};

/// Measures fresh calls and replays at 10,000 records, 100,000 and so on.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only these stores.
    #[arg(long, value_enum, value_delimiter = ',')]
    store: Vec<StoreKind>,
    /// The largest number of records.
    #[arg(long, default_value_t = 10_000_000)]
    most: u64,
    /// The time for which each kind of call is measured in each round, in milliseconds.
    #[arg(long, default_value_t = 1_000)]
    millis: u64,
    /// The number of rounds. The figures are the median.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// The folder to write `growth.md` and `growth.svg` to.
    #[arg(long)]
    write: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum StoreKind {
    Sqlite,
    Postgres,
    Redis,
}

/// The measurements of one store at one size.
pub(crate) struct Point {
    pub(crate) records: u64,
    pub(crate) filled_in: Duration,
    /// On disk, or in the server's memory.
    pub(crate) bytes: u64,
    /// The figures of each kind of call, with each number of callers.
    pub(crate) figures: Vec<(Kind, usize, Figures)>,
    /// The number of records that were made to expire, and how many of them were deleted by the end.
    pub(crate) made: u64,
    pub(crate) deleted: u64,
    /// The longest time that one purge took, if the program purges.
    pub(crate) longest_purge: Duration,
}

/// The measurements of one store.
pub(crate) struct Grown {
    pub(crate) store: String,
    pub(crate) points: Vec<Point>,
    /// The reason why it was not filled further.
    pub(crate) ended: Option<String>,
}

#[tokio::main]
async fn main() -> Anything<()> {
    let arguments = Arguments::parse();
    let begin = Instant::now();
    let mut all = Vec::new();
    for kind in StoreKind::value_variants() {
        if arguments.store.is_empty() || arguments.store.contains(kind) {
            let grown = match kind {
                StoreKind::Sqlite => grow(on_sqlite::Sqlite::new()?, &arguments).await?,
                StoreKind::Postgres => grow(on_postgres::OnPostgres::new().await?, &arguments).await?,
                StoreKind::Redis => grow(on_redis::OnRedis::new().await?, &arguments).await?,
            };
            all.push(grown);
        }
    }
    let tables = page::tables(&all);
    println!("{tables}");
    eprintln!("all in {:.0} s", begin.elapsed().as_secs_f64());
    if let Some(folder) = arguments.write {
        std::fs::create_dir_all(&folder)?;
        plot::draw(&all, &folder.join("growth.svg"))?;
        std::fs::write(folder.join("growth.md"), page::page(&all, &tables)?)?;
    }
    Ok(())
}

/// Fills a store step by step, and measures it at each step.
async fn grow<S: Subject>(mut subject: S, arguments: &Arguments) -> Anything<Grown> {
    let plan = Plan { rounds: arguments.rounds.max(1), time: Duration::from_millis(arguments.millis) };
    let mut grown = Grown { store: subject.name().await?, points: Vec::new(), ended: None };
    subject::model(&subject).await?;
    let (mut filled, mut next) = (0, 10_000);
    while next <= arguments.most {
        if let Err(reason) = subject.has_room(next - filled) {
            eprintln!("{}: stopped before {next} records: {reason}", grown.store);
            grown.ended = Some(reason);
            break;
        }
        let begin = Instant::now();
        subject.fill(filled, next).await?;
        let filled_in = begin.elapsed();
        subject::check(&subject, next).await?;
        let mut point = measure::point(&subject, next, plan).await?;
        point.filled_in = filled_in;
        eprintln!(
            "{}: {next} records, filled in {:.1} s, measured in {:.1} s",
            grown.store,
            filled_in.as_secs_f64(),
            (begin.elapsed() - filled_in).as_secs_f64()
        );
        grown.points.push(point);
        (filled, next) = (next, next * 10);
    }
    Ok(grown)
}
