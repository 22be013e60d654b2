//! The run: sends orders, starts and kills workers, and checks the books.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use idem_test_servers::program::{exit, report};
use rig_stores::servers::Servers;
use serde_json::json;

use crate::books::Books;
use crate::brokers::{OnApalis, OnKafka, OnLambda, OnNats, OnRabbitMq, OnSqs};
use crate::worker::{LEASE_MS, Worker, end, function, serve};
use crate::{Broker, CONCURRENCY, Failure, Kind, Order, Setup};

/// How long after its start a broker may refuse workers that connect.
const NOT_READY: Duration = Duration::from_secs(15);

/// The options of a demo.
#[derive(Clone, Debug, Args)]
struct Cli {
    /// How many orders.
    #[arg(long, default_value_t = 10_000)]
    messages: u64,
    /// How many copies are sent in addition, in percent; with 200 each message is sent three times.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=1000))]
    duplicates: u64,
    /// How many worker processes.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// The time between two kills of a worker, in milliseconds; 0 for no kills. The default depends on the
    /// broker.
    #[arg(long)]
    kill_every: Option<u64>,
    /// How many of the messages can never be handled.
    #[arg(long, default_value_t = 10)]
    poison: u64,
    /// How long shipping takes, in milliseconds.
    #[arg(long, default_value_t = 5)]
    work: u64,
    /// A store to start, such as `redis`, `postgres`, `dynamodb` or `sqlite`, or the URL of a store that runs
    /// already. By default `redis`, or `dynamodb` with `--broker lambda`.
    #[arg(long)]
    store: Option<String>,
    /// How long the store is down in the middle of the run, in seconds. The demo kills the store's server,
    /// and starts it again on the same data. Only for a server that the demo starts.
    #[arg(long, default_value_t = 0)]
    store_stop: u64,
    /// How long the broker is down, in seconds. This outage comes earlier than the outage of the store. The
    /// demo kills the broker, and starts it again on the same data. It does not kill the emulator of SQS,
    /// which keeps its data in memory, but only stops it for this time.
    #[arg(long, default_value_t = 0)]
    broker_stop: u64,
    /// Declares the RabbitMQ queues with the type `quorum`. Without this option their type is `classic`.
    #[arg(long)]
    quorum: bool,
}

#[derive(Debug, Parser)]
struct Arguments {
    /// The broker.
    #[arg(long, value_enum)]
    broker: Kind,
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
    /// A function of AWS Lambda that is called with one order; started by a test, which is its runtime.
    #[command(hide = true)]
    Function(Worker),
}

/// The whole program: the demo, and each of its workers. Ends with 0, with 1 if a promise was broken, or with
/// 2 if the demo could not run.
pub async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    exit(match arguments.broker {
        Kind::Nats => run::<OnNats>(&arguments).await,
        Kind::Rabbitmq => run::<OnRabbitMq>(&arguments).await,
        Kind::Kafka => run::<OnKafka>(&arguments).await,
        Kind::Sqs => run::<OnSqs>(&arguments).await,
        Kind::Lambda => run::<OnLambda>(&arguments).await,
        Kind::Apalis => run::<OnApalis>(&arguments).await,
    })
}

async fn run<B: Broker>(arguments: &Arguments) -> Result<bool, Failure> {
    match &arguments.worker {
        Some(Sub::Worker(worker)) => serve::<B>(worker).await.map(|()| true),
        Some(Sub::Function(worker)) => function(worker).await.map(|()| true),
        None => demo::<B>(&arguments.demo).await,
    }
}

/// Runs the demo, prints one line of JSON, and returns whether every promise was kept.
async fn demo<B: Broker>(cli: &Cli) -> Result<bool, Failure> {
    let folder = tempfile::tempdir()?;
    let (mut store, url) = Servers::start(cli.store.as_deref().unwrap_or(B::STORE), folder.path(), "")?;
    if cli.store_stop > 0 && !store.can_be_killed() {
        return Err("--store-stop needs a store whose server the demo starts".into());
    }
    let mut broker = B::start(&Setup { quorum: cli.quorum, survives: cli.broker_stop > 0 }).await?;
    let (address, folder) = (broker.address(), folder.path().to_owned());
    let worker = Worker { address, store: url, folder, work_ms: cli.work, lease_ms: LEASE_MS };
    // Opens the store before the workers start. Otherwise all of them would create the tables at the same
    // time.
    let shop = worker.shop().await?;
    broker.send(bodies(cli)?).await?;
    let ended = work_off(cli, &mut broker, &worker, &mut store).await?;
    let mut books = Books::of(&shop, cli.messages, ended * CONCURRENCY).await?;
    let letters = broker.dead_letters().await?;
    // The number of dead letters whose orders can be shipped.
    let healthy = letters.iter().filter(|letter| letter.reason.as_deref() != Some("terminal")).count() as u64;
    let dead_letters = u64::try_from(letters.len())?;
    let (left, poisoned) = (broker.waiting().await?, dead_letters - healthy);
    let unrecorded = if cli.store_stop == 0 { books.unrecorded } else { 0 };
    let checks = [
        (poisoned < cli.poison, format!("{poisoned} poisoned dead letters of {}", cli.poison)),
        (unrecorded > 0, format!("{unrecorded} answers were not recorded although the store ran")),
        (healthy > 0, format!("{healthy} orders that can be shipped are among the dead letters")),
        (left > 0, format!("{left} messages were not settled")),
    ];
    books.violations.extend(checks.into_iter().filter(|(is_broken, _)| *is_broken).map(|(_, what)| what));
    let line = json!({
        "messages": cli.messages,
        "deliveries": books.deliveries,
        "effects": books.effects,
        "replays": books.replays,
        "unrecorded": books.unrecorded,
        "dead_letters": dead_letters,
        "healthy_dead_letters": healthy,
        "interruptions": ended,
        "violations": books.violations.len(),
    });
    Ok(report(&line, &books.violations))
}

/// Lets the workers empty the queue. Meanwhile kills workers and stops the broker and the store, as the
/// options say. Returns how often a worker was killed or lost its store.
async fn work_off<B: Broker>(
    cli: &Cli,
    broker: &mut B,
    worker: &Worker,
    store: &mut Servers,
) -> Result<usize, Failure> {
    let kill_every = cli.kill_every.unwrap_or(B::KILL_EVERY_MS);
    let sent = broker.waiting().await?;
    // Each outage begins when at most this many messages are left.
    let mut broker_stop = (cli.broker_stop > 0).then_some(sent / 4 * 3);
    let mut store_stop = (cli.store_stop > 0).then_some(sent / 2);
    let program = std::env::current_exe()?;
    let start = || worker.start(&program, B::KIND);
    let mut workers: Vec<_> = (0..cli.workers).map(|_| start()).collect();
    let begin = Instant::now();
    let patience = Duration::from_secs(120 + cli.store_stop + cli.broker_stop)
        + Duration::from_millis(50 * cli.messages);
    let (mut cut_off, mut last_kill, mut restarted) = (0, begin, None::<Instant>);
    // The time at which each outage ends. Workers are killed during an outage of the store, too.
    let (mut broker_back, mut store_back) = (None::<Instant>, None::<Instant>);
    let is_over = |back: &mut Instant| *back <= Instant::now();
    loop {
        if broker_back.take_if(is_over).is_some() {
            broker.restart().await?;
            restarted = Some(Instant::now());
        }
        if store_back.take_if(is_over).is_some() {
            store.switch(true);
        }
        let waiting = if broker_back.is_some() { sent } else { broker.waiting().await? };
        if waiting == 0 && (broker_stop.is_some() || store_stop.is_some()) {
            return Err("the queue is empty before an outage began: give more `--messages`".into());
        }
        if broker_stop.take_if(|left| waiting <= *left).is_some() {
            broker.kill();
            broker_back = Some(Instant::now() + Duration::from_secs(cli.broker_stop));
        }
        if store_stop.take_if(|left| waiting <= *left).is_some() {
            store.switch(false);
            store_back = Some(Instant::now() + Duration::from_secs(cli.store_stop));
            cut_off += workers.len();
        }
        if (waiting == 0 && store_back.is_none()) || begin.elapsed() >= patience {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if broker_back.is_some() {
            continue;
        }
        for worker in &mut workers {
            if worker.status().is_some() {
                // A worker ends if it starts while the broker is down or not ready. A supervisor would start
                // the worker again, so the demo does.
                if restarted.is_none_or(|restarted| restarted.elapsed() > NOT_READY) {
                    return Err("a worker ended by itself: see above".into());
                }
                *worker = start();
            }
        }
        if kill_every > 0 && last_kill.elapsed() >= Duration::from_millis(kill_every) {
            // Starts the new worker before it kills the old one, so that the number of workers never falls.
            workers.push(start());
            drop(workers.remove(0));
            cut_off += 1;
            last_kill = Instant::now();
        }
    }
    for worker in &mut workers {
        if !end(worker).await {
            return Err("a worker ended with an error".into());
        }
    }
    Ok(cut_off)
}

/// The bodies of all messages: each order, the copies of orders, and messages that can never be handled.
fn bodies(cli: &Cli) -> Result<Vec<String>, Failure> {
    let (mut orders, mut late) = (Vec::new(), Vec::new());
    for order in 0..cli.messages {
        orders.push(order);
        let copies = (order + 1) * cli.duplicates / 100 - order * cli.duplicates / 100;
        // About every other copy follows its order closely; the rest come at the end.
        for copy in 0..copies {
            if (order + copy) % 2 == 0 { orders.push(order) } else { late.push(order) }
        }
    }
    orders.append(&mut late);
    let mut bodies = Vec::new();
    for id in orders {
        bodies.push(serde_json::to_string(&Order { id, pieces: 1 + u32::try_from(id % 5)? })?);
    }
    for poison in 0..cli.poison {
        let place = usize::try_from(poison)? * 7 % (bodies.len() + 1);
        let empty = Order { id: cli.messages + poison, pieces: 0 };
        let body = if poison % 2 == 0 { "no order".to_owned() } else { serde_json::to_string(&empty)? };
        bodies.insert(place, body);
    }
    Ok(bodies)
}
