//! The run: orders are sent, workers start and are killed, and the books are looked at.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use idem::message::Summary;
use idem_test_servers::{Postgres, Redis};
use serde_json::json;

use crate::books::Books;
use crate::worker::{Process, Worker, serve};
use crate::{Failure, Order, Shop};

/// How a demo is run.
#[derive(Clone, Debug, Args)]
struct Cli {
    /// How many orders.
    #[arg(long, default_value_t = 10_000)]
    messages: u64,
    /// How many of them are sent twice, in percent.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=100))]
    duplicates: u64,
    /// How many worker processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// How often a worker is killed, in milliseconds; 0 for never. As the broker allows unless given.
    #[arg(long)]
    kill_every: Option<u64>,
    /// How many messages that can never be handled are among them.
    #[arg(long, default_value_t = 10)]
    poison: u64,
    /// How long shipping takes, in milliseconds.
    #[arg(long, default_value_t = 5)]
    work: u64,
    /// Where results are kept: `redis`, `postgres` or `sqlite` of its own, or one that is there:
    /// sqlite:FILE | redis://.. | postgres://..
    #[arg(long, default_value = "redis")]
    store: String,
}

/// A broker that the demo starts, and how its workers take from it.
pub trait Broker: Sized {
    /// How many handlers each worker runs at a time.
    const CONCURRENCY: usize;

    /// How often a worker is killed unless told otherwise, in milliseconds.
    const KILL_EVERY_MS: u64 = 500;

    /// The least time between two kills that leaves a worker some time to work, in milliseconds.
    const LEAST_KILL_EVERY_MS: u64 = 0;

    /// Starts it, with a queue for the orders and one for what is set aside.
    fn start() -> impl Future<Output = Result<Self, Failure>>;

    /// What a worker is told, to find it.
    fn address(&self) -> String;

    /// Does a worker's work until `shutdown` ends, in a process of its own.
    fn work(
        address: &str,
        shop: &Shop,
        shutdown: impl Future<Output = ()>,
    ) -> impl Future<Output = Result<Summary, Failure>>;

    /// Sends each as a message of its own, whatever the broker would take for a duplicate.
    fn send(&self, bodies: Vec<Vec<u8>>) -> impl Future<Output = Result<(), Failure>>;

    /// How many messages are not done with, those included that a worker has.
    fn waiting(&self) -> impl Future<Output = Result<u64, Failure>>;

    /// How many were set aside.
    fn dead_letters(&self) -> impl Future<Output = Result<u64, Failure>>;
}

#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    demo: Cli,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Debug, Subcommand)]
enum Sub {
    /// One worker; started by the demo itself.
    #[command(hide = true)]
    Worker(Worker),
}

/// The whole program: the demo, and each of its workers. Ends with 0, with 1 if a promise was broken, and
/// with 2 if it could not be run.
pub async fn main<B: Broker>() -> ExitCode {
    let arguments = Arguments::parse();
    let ended = match &arguments.worker {
        Some(Sub::Worker(worker)) => serve::<B>(worker).await.map(|()| true),
        None => demo::<B>(&arguments.demo).await,
    };
    match ended {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Runs it all, prints one line of JSON, and says whether no promise was broken.
async fn demo<B: Broker>(cli: &Cli) -> Result<bool, Failure> {
    if let Some(every) = cli.kill_every
        && every > 0
        && every < B::LEAST_KILL_EVERY_MS
    {
        let least = B::LEAST_KILL_EVERY_MS;
        return Err(format!(
            "--kill-every {every} is too often: this broker gives the messages of a killed worker to others only later, \
             so that nothing would be handled; say 0, or {least} or more"
        )
        .into());
    }
    if cli.store == "redis" {
        Redis::installed()?;
    }
    let broker = B::start().await?;
    let folder = tempfile::tempdir()?;
    let store = Store::start(&cli.store, folder.path());
    let work = Duration::from_millis(cli.work);
    let worker = Worker::new(&broker.address(), &store.url(), folder.path().to_owned(), work);
    // Before the workers, so that they need not make its tables at once.
    let shop = worker.shop().await?;
    broker.send(bodies(cli)?).await?;
    let kills = work_off(cli, &broker, &worker).await?;
    let mut books = Books::of(&shop, cli.messages, kills * B::CONCURRENCY).await?;
    let dead_letters = broker.dead_letters().await?;
    if dead_letters < cli.poison {
        books.violations.push(format!("{dead_letters} dead letters of {}", cli.poison));
    }
    let left = broker.waiting().await?;
    if left > 0 {
        books.violations.push(format!("{left} messages were not done with"));
    }
    books.violations.iter().for_each(|violation| eprintln!("{violation}"));
    let line = json!({
        "messages": cli.messages,
        "deliveries": books.deliveries,
        "effects": books.effects,
        "replays": books.replays,
        "dead_letters": dead_letters,
        "violations": books.violations.len(),
    });
    println!("{line}");
    Ok(books.violations.is_empty())
}

/// Has the workers empty the queue, kills them as told, and says how many were.
async fn work_off<B: Broker>(cli: &Cli, broker: &B, worker: &Worker) -> Result<usize, Failure> {
    let kill_every = cli.kill_every.unwrap_or(B::KILL_EVERY_MS);
    let mut workers = (0..cli.workers).map(|_| worker.start()).collect::<Result<Vec<_>, _>>()?;
    let begin = Instant::now();
    let patience = Duration::from_secs(120) + Duration::from_millis(50 * cli.messages);
    let (mut kills, mut last_kill) = (0, begin);
    while broker.waiting().await? > 0 && begin.elapsed() < patience {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if workers.iter_mut().map(Process::is_over).collect::<Result<Vec<_>, _>>()?.contains(&true) {
            return Err("a worker ended of its own: see above".into());
        }
        if kill_every > 0 && last_kill.elapsed() >= Duration::from_millis(kill_every) {
            // A new one first: nobody waits for the dead.
            workers.push(worker.start()?);
            drop(workers.remove(0));
            kills += 1;
            last_kill = Instant::now();
        }
    }
    for worker in workers {
        if !worker.end().await? {
            return Err("a worker did not end in good order".into());
        }
    }
    Ok(kills)
}

/// The messages: the orders, some of them twice, and among them what can never be handled.
fn bodies(cli: &Cli) -> Result<Vec<Vec<u8>>, Failure> {
    let mut orders: Vec<u64> = (0..cli.messages).collect();
    let twice =
        (0..cli.messages).filter(|order| order * cli.duplicates / 100 != (order + 1) * cli.duplicates / 100);
    // Spread, so that some duplicates meet and others come late.
    for (place, order) in twice.enumerate() {
        let near = usize::try_from(order)? + place + 1;
        orders.insert(if place % 2 == 0 { near } else { orders.len() }, order);
    }
    let mut bodies = Vec::new();
    for id in orders {
        bodies.push(serde_json::to_vec(&Order { id, pieces: 1 + u32::try_from(id % 5)? })?);
    }
    for poison in 0..cli.poison {
        let place = usize::try_from(poison)? * 7 % (bodies.len() + 1);
        let empty = Order { id: cli.messages + poison, pieces: 0 };
        let body = if poison % 2 == 0 { b"no order".to_vec() } else { serde_json::to_vec(&empty)? };
        bodies.insert(place, body);
    }
    Ok(bodies)
}

/// Where results are kept, and the server if it is the demo's own.
enum Store {
    Redis(Redis),
    Postgres(Postgres),
    There(String),
}

impl Store {
    fn start(store: &str, folder: &Path) -> Self {
        match store {
            "redis" => Self::Redis(Redis::start()),
            "postgres" => Self::Postgres(Postgres::start()),
            "sqlite" => Self::There(format!("sqlite:{}", folder.join("orders.db").display())),
            there => Self::There(there.to_owned()),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::There(url) => url.clone(),
        }
    }
}
