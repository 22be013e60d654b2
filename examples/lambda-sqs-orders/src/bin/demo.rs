//! Runs the function in workers on this machine, and kills them.
//!
//! `cargo run -p lambda-sqs-orders --bin demo -- [--messages 1000] [--duplicates 30] [--workers 3]
//! [--kill-every MS] [--store-stop SECONDS]`
//!
//! Starts an emulator of SQS and one of DynamoDB, sends orders, `--duplicates` percent of them twice, and
//! starts workers that do what Lambda does: receive messages, call the function through its
//! service interface, and delete the messages that it did not report as failed. Kills a worker every `--kill-every`
//! milliseconds. Then checks every order, and prints one line of JSON; ends with 1 on a violation: an order without a
//! recorded result, an answer that differs from the recorded one, or more effects than orders and kills allow.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use aws_sdk_sqs::types::{QueueAttributeName, SendMessageBatchRequestEntry};
use clap::{Parser, Subcommand};
use idem::protocol::{State, StoredResult};
use idem::{DynamoDbStore, KeyBuilder, RecordKey, Scope, Store};
use idem_test_servers::{Aws, Server};
use lambda_runtime::service_fn;
use lambda_sqs_orders::mapping::{BATCH, Mapping, emulated};
use lambda_sqs_orders::{App, Order, Shipment, append, configuration, handle};
use serde_json::json;

type Anything<T> = Result<T, Box<dyn Error>>;

const TABLE: &str = "orders";

/// How long a received message stays hidden, in seconds.
const VISIBILITY: i32 = 3;

/// How often a message is delivered before it becomes a dead letter.
const DELIVERIES: u32 = 50;

const LEASE: Duration = Duration::from_millis(1_500);

#[derive(Parser)]
struct Cli {
    /// How many orders.
    #[arg(long, default_value_t = 1_000)]
    messages: u64,
    /// How many of them are sent twice, in percent.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=100))]
    duplicates: u64,
    /// How many workers.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=64))]
    workers: u64,
    /// The time between two kills of a worker, in milliseconds; 0 for no kills.
    #[arg(long, default_value_t = 500)]
    kill_every: u64,
    /// How long the table is down in the middle of the run, in seconds: its emulator, which is not the queue's, is
    /// stopped and continued.
    #[arg(long, default_value_t = 0)]
    store_stop: u64,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Subcommand)]
enum Sub {
    /// One worker; started by the demo itself.
    #[command(hide = true)]
    Worker { queue: String, folder: PathBuf },
}

#[tokio::main]
pub(crate) async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match &cli.worker {
        Some(Sub::Worker { queue, folder }) => worker(queue, folder).await.map(|()| true),
        None => demo(&cli).await,
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

/// Calls the function with the messages of the queue, as Lambda does.
async fn worker(queue: &str, folder: &Path) -> Anything<()> {
    let sqs = aws_sdk_sqs::Client::new(&configuration().await);
    let app = App {
        store: store().await,
        ledger: folder.join("ledger"),
        answers: Some(folder.join("answers")),
        dead_letters: None,
        work: Duration::from_millis(20),
        lease: LEASE,
    };
    let mapping = Mapping::new(sqs, queue.to_owned());
    let mut function = service_fn(|event| handle(&app, event));
    loop {
        // Fails at the end of the demo, when the emulator ends before its workers.
        let messages = mapping.take().await?;
        if messages.is_empty() {
            continue;
        }
        append(&folder.join("deliveries"), &"1\n".repeat(messages.len()))?;
        mapping.deliver(messages, &mut function).await?;
    }
}

async fn store() -> DynamoDbStore {
    let client = aws_sdk_dynamodb::Client::new(&configuration().await);
    // All workers run on one machine, so their clocks agree.
    DynamoDbStore::builder(client, TABLE).clock_skew(Duration::ZERO).build()
}

/// A worker that does not outlive the demo.
struct Worker(Child);

impl Worker {
    fn start((sqs, dynamodb): (&str, &str), queue: &str, folder: &Path) -> Anything<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("worker").arg(queue).arg(folder).envs(environment(sqs, dynamodb));
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The environment by which the SDK finds the emulators.
fn environment(sqs: &str, dynamodb: &str) -> [(&'static str, String); 5] {
    [
        ("AWS_ENDPOINT_URL_SQS", sqs.to_owned()),
        ("AWS_ENDPOINT_URL_DYNAMODB", dynamodb.to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "test".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
    ]
}

async fn demo(cli: &Cli) -> Anything<bool> {
    Aws::installed()?;
    // One emulator for the queue and one for the table, so that the demo can stop the table alone.
    let (aws, mut table) = (Aws::start(), Aws::start());
    let sqs = aws_sdk_sqs::Client::new(&emulated(&aws.url()).await);
    let client = aws_sdk_dynamodb::Client::new(&emulated(&table.url()).await);
    let store = DynamoDbStore::builder(client, TABLE).clock_skew(Duration::ZERO).build();
    store.create_table().await?;
    let (queue, dead) = queues(&sqs).await?;
    send(&sqs, &queue, cli).await?;

    let folder = tempfile::tempdir()?;
    let (queue_url, table_url) = (aws.url(), table.url());
    let start = || Worker::start((&queue_url, &table_url), &queue, folder.path());
    let mut workers = (0..cli.workers).map(|_| start()).collect::<Anything<Vec<_>>>()?;
    let mut kills = 0;
    let mut last_kill = Instant::now();
    let begin = Instant::now();
    let patience = Duration::from_secs(120 + cli.store_stop) + Duration::from_millis(100 * cli.messages);
    let (half, mut outage) = (waiting(&sqs, &queue).await? / 2, Outage::new(cli.store_stop));
    loop {
        let left = waiting(&sqs, &queue).await?;
        outage.begins_or_ends(left <= half, table.server());
        if left == 0 && !matches!(outage, Outage::Since(..)) {
            break;
        }
        if begin.elapsed() > patience {
            eprintln!("the queue was not empty after {patience:?}");
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        if cli.kill_every > 0 && last_kill.elapsed() >= Duration::from_millis(cli.kill_every) {
            // Starts the new worker before it kills the old one, so that the number of workers never falls.
            let next = start()?;
            drop(workers.remove(0));
            workers.push(next);
            kills += 1;
            last_kill = Instant::now();
        }
    }
    drop(workers);
    if !matches!(outage, Outage::None) {
        return Err("the run was over before the table was back: ask for more messages".into());
    }
    // A worker that cannot reach the table loses the orders that it had begun, as a killed worker does.
    let cut_off = kills + if cli.store_stop > 0 { usize::try_from(cli.workers)? } else { 0 };
    let mut found = Found::of(folder.path(), cli.messages, cut_off, &store).await?;
    let dead_letters = waiting(&sqs, &dead).await?;
    if dead_letters > 0 {
        eprintln!("{dead_letters} orders are among the dead letters");
        found.violations += 1;
    }
    let line = json!({
        "messages": cli.messages,
        "deliveries": found.deliveries,
        "effects": found.effects,
        "replays": found.replays,
        "dead_letters": dead_letters,
        "violations": found.violations,
    });
    println!("{line}");
    Ok(found.violations == 0)
}

/// The time in which the table is down.
enum Outage {
    /// Not begun yet; its length in seconds.
    Before(u64),
    Since(Instant, Duration),
    /// None, or it is over.
    None,
}

impl Outage {
    const fn new(seconds: u64) -> Self {
        if seconds == 0 { Self::None } else { Self::Before(seconds) }
    }

    /// Stops or continues the server, if that is due. It keeps its data in memory, so it is not killed.
    fn begins_or_ends(&mut self, is_middle: bool, server: &Server) {
        match *self {
            Self::Before(seconds) if is_middle => {
                server.signal("-STOP");
                *self = Self::Since(Instant::now(), Duration::from_secs(seconds));
            }
            Self::Since(begin, length) if begin.elapsed() >= length => {
                server.signal("-CONT");
                *self = Self::None;
            }
            _ => {}
        }
    }
}

/// The queue of the orders and the one of its dead letters.
async fn queues(sqs: &aws_sdk_sqs::Client) -> Anything<(String, String)> {
    let dead = sqs.create_queue().queue_name("orders-dead").send().await?.queue_url.ok_or("no queue")?;
    let asked = sqs.get_queue_attributes().queue_url(&dead).attribute_names(QueueAttributeName::QueueArn);
    let attributes = asked.send().await?.attributes.unwrap_or_default();
    let arn = attributes.get(&QueueAttributeName::QueueArn).ok_or("no name of the queue")?;
    let redrive = json!({ "deadLetterTargetArn": arn, "maxReceiveCount": DELIVERIES });
    let create = sqs
        .create_queue()
        .queue_name("orders")
        .attributes(QueueAttributeName::VisibilityTimeout, VISIBILITY.to_string())
        .attributes(QueueAttributeName::RedrivePolicy, redrive.to_string());
    Ok((create.send().await?.queue_url.ok_or("no queue")?, dead))
}

async fn send(sqs: &aws_sdk_sqs::Client, queue: &str, cli: &Cli) -> Anything<()> {
    let mut orders: Vec<u64> = (0..cli.messages).collect();
    // Every other duplicate follows its order closely; the rest come at the end.
    let twice =
        (0..cli.messages).filter(|order| order * cli.duplicates / 100 != (order + 1) * cli.duplicates / 100);
    for (place, order) in twice.enumerate() {
        let near = usize::try_from(order)? + place + 1;
        orders.insert(if place % 2 == 0 { near } else { orders.len() }, order);
    }
    for orders in orders.chunks(usize::try_from(BATCH)?) {
        let mut entries = Vec::new();
        for (place, &id) in orders.iter().enumerate() {
            let body = serde_json::to_string(&Order { id, pieces: 1 + u32::try_from(id % 5)? })?;
            let entry = SendMessageBatchRequestEntry::builder().id(place.to_string()).message_body(body);
            entries.push(entry.build()?);
        }
        sqs.send_message_batch().queue_url(queue).set_entries(Some(entries)).send().await?;
    }
    Ok(())
}

/// How many messages are on a queue, including those that a worker holds.
async fn waiting(sqs: &aws_sdk_sqs::Client, queue: &str) -> Anything<u64> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
    ];
    let asked = sqs.get_queue_attributes().queue_url(queue).set_attribute_names(Some(names.to_vec()));
    let attributes = asked.send().await?.attributes.unwrap_or_default();
    let mut waiting = 0;
    for name in &names {
        waiting += attributes.get(name).map_or(Ok(0), |count| count.parse::<u64>())?;
    }
    Ok(waiting)
}

/// The figures of a run.
struct Found {
    deliveries: usize,
    effects: usize,
    replays: usize,
    violations: u64,
}

impl Found {
    async fn of(folder: &Path, orders: u64, kills: usize, store: &DynamoDbStore) -> Anything<Self> {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
        let mut answers: BTreeMap<u64, BTreeSet<String>> = BTreeMap::new();
        let mut replays = 0;
        for line in read("answers").lines() {
            let mut words = line.split(' ');
            let (order, parcel) = (words.next().ok_or("no order")?, words.next().ok_or("no parcel")?);
            answers.entry(order.parse()?).or_default().insert(parcel.to_owned());
            replays += usize::from(words.next() == Some("replayed"));
        }
        let mut violations = 0;
        for order in 0..orders {
            let recorded = recorded(store, order).await?;
            let given = answers.remove(&order).unwrap_or_default();
            let single =
                given.len() <= 1 && given.first().is_none_or(|given| recorded.as_ref() == Some(given));
            if recorded.is_none() || !single {
                eprintln!("order {order}: recorded {recorded:?}, answered {given:?}");
                violations += 1;
            }
        }
        let ledger = read("ledger");
        let effects = ledger.lines().count();
        let shipped: BTreeSet<&str> = ledger.lines().collect();
        // A killed worker may have begun every message of its batch.
        let allowed = shipped.len() + kills * usize::try_from(BATCH)?;
        if effects > allowed {
            eprintln!("{effects} effects, where {allowed} are the most that {kills} kills explain");
            violations += 1;
        }
        Ok(Self { deliveries: read("deliveries").lines().count(), effects, replays, violations })
    }
}

/// The recorded parcel of an order.
async fn recorded(store: &DynamoDbStore, order: u64) -> Anything<Option<String>> {
    let key = KeyBuilder::new().literal("order/").part(&order).finish()?;
    let record = store.get(&RecordKey::new(Scope::new("orders.ship")?, key)).await?;
    Ok(match record {
        Some(record) if record.state == State::Completed => match record.result {
            Some(StoredResult::Value(bytes)) => Some(serde_json::from_slice::<Shipment>(&bytes)?.parcel),
            _ => None,
        },
        _ => None,
    })
}
