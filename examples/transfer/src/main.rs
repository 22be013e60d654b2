//! Money between accounts with `transaction = tx` and a message for each transfer, while the workers are killed.
//!
//! `cargo run -p transfer -- [--url postgres://..] [--driver NAME] [--transfers N] [--workers N] [--kill-every MS]` starts
//! worker processes that make every transfer again and again, each with a relay that publishes what was enqueued
//! to a broker in the first process. It kills one every few milliseconds and starts another, until each transfer
//! was made and told. Then it counts: every transfer once, the sum as it was, and each account's messages in the order
//! of its transfers, none missing. It ends with 0, or with 1 if anything is otherwise. Without `--url` it starts a server of
//! its own. `--driver` says whose transactions the workers use: `sqlx`, `tokio-postgres`, `diesel-async` or `sea-orm`.

mod broker;
mod driver;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use broker::{Broker, ToBroker};
use clap::Parser;
use driver::{Connection, Driver, Ledger};
use idem::outbox::{Outbox, OutboxError, Relay};
use idem::{PostgresStore, idempotent};
use idem_test_servers::Postgres as Server;
use rand::RngExt as _;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Row as _};

const ACCOUNTS: i64 = 10;
const BALANCE: i64 = 1_000_000;

/// Moves money between accounts, each transfer once, while workers are killed.
#[derive(Debug, Parser)]
struct Arguments {
    /// The database; without it, a server is started.
    #[arg(long)]
    url: Option<String>,
    /// Whose transactions the workers use.
    #[arg(long, value_enum, default_value_t = Driver::Sqlx)]
    driver: Driver,
    /// How many transfers to make.
    #[arg(long, default_value_t = 1_000)]
    transfers: i64,
    /// How many worker processes.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// How often a worker is killed, in milliseconds.
    #[arg(long, default_value_t = 150)]
    kill_every: u64,
    /// For the worker processes: the schema they work in.
    #[arg(long, hide = true)]
    worker_in: Option<String>,
    /// For the worker processes: where the broker listens.
    #[arg(long, hide = true, default_value = "")]
    broker: String,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("the bank's system hiccups")]
    Hiccup,
    #[error(transparent)]
    Database(Failure),
    #[error(transparent)]
    Outbox(#[from] OutboxError),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

struct Bank {
    pool: PgPool,
    /// Where its tables are. Statements name it, as a session behind a pooler is another client's next.
    schema: String,
    store: PostgresStore,
    outbox: Outbox,
}

/// Who pays whom how much: a transfer's number says it all.
#[derive(Clone, Copy)]
struct Transfer {
    id: i64,
    from: i64,
    to: i64,
    amount: i64,
}

impl Transfer {
    const fn number(id: i64) -> Self {
        let from = id % ACCOUNTS;
        Self { id, from, to: (from + 1 + id / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS, amount: 1 + id % 97 }
    }
}

/// Moves the money, and has it told. The claim, all that is written, the message and the result are one commit: the
/// caller's.
#[idempotent(
    key = "transfer/{transfer.id}",
    scope = "bank.transfer",
    fingerprint = (transfer.from, transfer.to, transfer.amount),
    store = bank.store,
    transaction = tx
)]
async fn transfer<T: Ledger>(bank: &Bank, tx: &mut T, transfer: Transfer) -> Result<i64, TransferError> {
    let Transfer { id, from, to, amount } = transfer;
    // In one order, so that no two transfers wait for each other.
    let mut moves = [(from, -amount), (to, amount)];
    moves.sort_unstable();
    let mut which = 0_i64;
    for (account, change) in moves {
        let sent = tx.change(&bank.schema, account, change, i64::from(account == from)).await;
        let sent = sent.map_err(TransferError::Database)?;
        if account == from {
            which = sent;
        }
        if rand::rng().random_bool(0.02) {
            return Err(TransferError::Hiccup);
        }
    }
    // No unique index keeps a second one out: they are counted.
    tx.note(&bank.schema, id).await.map_err(TransferError::Database)?;
    // Its number among the account's transfers, by which the broker can tell whether they come in order.
    bank.outbox.enqueue(tx, &format!("account/{from}"), format!("{which} {id}")).await?;
    Ok(amount)
}

async fn open(url: &str, schema: &str) -> Result<Bank, Failure> {
    let pool = PgPoolOptions::new().max_connections(4).connect(url).await?;
    let store = PostgresStore::builder(url).schema(schema).connect().await?;
    let outbox = Outbox::builder(url).schema(schema).connect().await?;
    Ok(Bank { pool, schema: schema.to_owned(), store, outbox })
}

/// Works, and publishes beside that.
async fn work_and_publish(arguments: &Arguments, url: &str, schema: &str) -> Result<(), Failure> {
    let bank = open(url, schema).await?;
    let relay = Relay::new(bank.outbox.clone(), ToBroker::at(&arguments.broker))
        .publish_timeout(Duration::from_millis(400))
        .lease(Duration::from_secs(1))
        .backoff(Duration::from_millis(20), Duration::from_millis(200));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = tokio::spawn(relay.run(async { drop(stopped.await) }));
    let mut connection = Connection::open(arguments.driver, url).await?;
    work(&bank, &mut connection, arguments.transfers).await?;
    drop(stop);
    relay.await??;
    Ok(())
}

/// Makes transfers in any order, those that were made too, and prints a word for each, until it is killed or all
/// are made and told.
async fn work(bank: &Bank, connection: &mut Connection, transfers: i64) -> Result<(), Failure> {
    loop {
        for _ in 0..50 {
            let next = Transfer::number(rand::rng().random_range(0..transfers));
            let made = connection.make(bank, next).await?;
            let word = match (&made.value, made.outcome) {
                (Ok(amount), _) if *amount != next.amount => "wrong",
                (Ok(_), Some(idem::Outcome::Replayed { .. })) => "replayed",
                (Ok(_), _) => "made",
                (Err(TransferError::Idem(idem::Error::InFlight { .. })), _) => "in_flight",
                (Err(TransferError::Hiccup), _) => "failed",
                (Err(error), _) => {
                    eprintln!("{error}");
                    "failed"
                }
            };
            println!("{word}");
        }
        if is_over(bank, transfers).await? {
            return Ok(());
        }
    }
}

/// Whether all transfers are made and told.
async fn is_over(bank: &Bank, transfers: i64) -> Result<bool, Failure> {
    let made = count(bank, "count(DISTINCT id)", "effects").await?;
    Ok(made >= transfers && count(bank, "count(*)", "idem_outbox").await? == 0)
}

async fn count(bank: &Bank, what: &str, table: &str) -> Result<i64, Failure> {
    let statement = AssertSqlSafe(format!("SELECT {what} FROM {}.{table}", bank.schema));
    Ok(sqlx::query(statement).persistent(false).fetch_one(&bank.pool).await?.try_get(0)?)
}

/// What the workers have said.
#[derive(Default)]
struct Words {
    made: AtomicUsize,
    replayed: AtomicUsize,
    in_flight: AtomicUsize,
    failed: AtomicUsize,
    wrong: AtomicUsize,
}

impl Words {
    fn heard(&self, word: &str) {
        let counter = match word {
            "made" => &self.made,
            "replayed" => &self.replayed,
            "in_flight" => &self.in_flight,
            "failed" => &self.failed,
            _ => &self.wrong,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Starts workers and hears what they say.
struct Crew<'a> {
    arguments: &'a Arguments,
    url: &'a str,
    schema: &'a str,
    broker: String,
    words: Arc<Words>,
}

impl Crew<'_> {
    fn spawn(&self) -> Result<Child, Failure> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--url", self.url, "--worker-in", self.schema, "--broker", &self.broker])
            .args(["--transfers", &self.arguments.transfers.to_string()])
            .args(["--driver", self.arguments.driver.name()])
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let said = child.stdout.take().ok_or("the worker has no output")?;
        let words = self.words.clone();
        std::thread::spawn(move || {
            for word in BufReader::new(said).lines().map_while(Result::ok) {
                words.heard(&word);
            }
        });
        Ok(child)
    }

    /// Keeps workers working and kills them, until every transfer is made and told; how many were killed.
    async fn disturb(&self, bank: &Bank) -> Result<usize, Failure> {
        let mut workers = Vec::new();
        for _ in 0..self.arguments.workers {
            workers.push(self.spawn()?);
        }
        let mut killed = 0;
        while !is_over(bank, self.arguments.transfers).await? {
            tokio::time::sleep(Duration::from_millis(self.arguments.kill_every)).await;
            let victim = rand::rng().random_range(0..workers.len());
            workers[victim].kill()?;
            workers[victim].wait()?;
            workers[victim] = self.spawn()?;
            killed += 1;
        }
        for mut worker in workers {
            while worker.try_wait()?.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(killed)
    }
}

/// What is not as it must be.
async fn violations(
    bank: &Bank,
    transfers: i64,
    words: &Words,
    broker: &Broker,
) -> Result<Vec<String>, Failure> {
    let mut found = broker.violations();
    let told = i64::try_from(broker.distinct())?;
    if told != transfers {
        found.push(format!("{told} messages for {transfers} transfers"));
    }
    let effects = count(bank, "count(*)", "effects").await?;
    let distinct = count(bank, "count(DISTINCT id)", "effects").await?;
    if (effects, distinct) != (transfers, transfers) {
        found.push(format!("{transfers} transfers have {effects} effects, {distinct} of them distinct"));
    }
    let sum = count(bank, "sum(balance)::bigint", "accounts").await?;
    if sum != ACCOUNTS * BALANCE {
        found.push(format!("the sum is {sum} and was {}", ACCOUNTS * BALANCE));
    }
    let mut expected = vec![BALANCE; usize::try_from(ACCOUNTS)?];
    for Transfer { from, to, amount, .. } in (0..transfers).map(Transfer::number) {
        expected[usize::try_from(from)?] -= amount;
        expected[usize::try_from(to)?] += amount;
    }
    for id in 0..ACCOUNTS {
        let balance = count(bank, "balance", &format!("accounts WHERE id = {id}")).await?;
        let expected = expected[usize::try_from(id)?];
        if balance != expected {
            found.push(format!("account {id} has {balance} and should have {expected}"));
        }
    }
    let wrong = words.wrong.load(Ordering::Relaxed);
    if wrong > 0 {
        found.push(format!("{wrong} results were another transfer's"));
    }
    Ok(found)
}

async fn run(arguments: &Arguments, url: &str) -> Result<bool, Failure> {
    let schema = format!("idem_transfer_{}", std::process::id());
    let bank = {
        let first = PgPool::connect(url).await?;
        first.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await?;
        open(url, &schema).await?
    };
    bank.pool
        .execute(AssertSqlSafe(format!(
            "CREATE TABLE {schema}.accounts (id bigint PRIMARY KEY, balance bigint NOT NULL, sent bigint NOT NULL DEFAULT 0); \
             CREATE TABLE {schema}.effects (id bigint NOT NULL); \
             INSERT INTO {schema}.accounts SELECT n, {BALANCE} FROM generate_series(0, {ACCOUNTS} - 1) n"
        )))
        .await?;
    let (broker, begin) = (Broker::listen().await?, Instant::now());
    let words = Arc::new(Words::default());
    let crew = Crew { arguments, url, schema: &schema, broker: broker.address(), words: words.clone() };
    let killed = crew.disturb(&bank).await?;
    let violations = violations(&bank, arguments.transfers, &words, &broker).await?;
    let heard = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let driver = arguments.driver.name();
    println!(
        "{} transfers by {driver} in {:.1?}, {killed} workers killed",
        arguments.transfers,
        begin.elapsed()
    );
    println!("  effects:             {}", count(&bank, "count(*)", "effects").await?);
    println!(
        "  duplicates offered:  {} replayed, {} in flight",
        heard(&words.replayed),
        heard(&words.in_flight)
    );
    println!("  bodies that failed:  {}", heard(&words.failed));
    println!("  sum:                 {}", count(&bank, "sum(balance)::bigint", "accounts").await?);
    println!("  messages:            {} published, {} of them again", broker.distinct(), broker.repeats());
    println!("  violations:          {}", violations.len());
    for violation in violations.iter().take(20) {
        println!("    {violation}");
    }
    std::io::stdout().flush()?;
    bank.pool.execute(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).await?;
    Ok(violations.is_empty())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse();
    if arguments.transfers < 1 || arguments.workers < 1 {
        return Err("at least one transfer and one worker are needed".into());
    }
    if let (Some(schema), Some(url)) = (&arguments.worker_in, &arguments.url) {
        work_and_publish(&arguments, url, schema).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let server = if arguments.url.is_none() { Some(Server::with(&[])) } else { None };
    let url = arguments.url.clone().or_else(|| server.as_ref().map(Server::url)).unwrap_or_default();
    let holds = run(&arguments, &url).await?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_catalogue_is_as_it_was_committed() {
        idem_testing::assert_catalogue("idem.catalogue");
    }
}
