//! Moves money between accounts with `transaction = tx` and a message for each transfer. Meanwhile the
//! program kills its workers again and again.
//!
//! `cargo run -p transfer -- [--url URL | --server NAME] [--driver NAME] [--transfers N] [--workers N]
//! [--kill-every MS]` starts worker processes that make every transfer again and again. Each worker has a
//! relay that publishes the enqueued messages to a broker, which is a file. The program kills a worker every
//! few milliseconds and starts another, until each transfer is made and its message published. Then it checks
//! that every transfer happened once, that the sum of money is unchanged, and that each account's messages
//! came in the order of its transfers, with none missing. The program ends with 0, with 1 on a violation, or
//! with 2 if it could not run.
//!
//! The URL is `postgres://..`, also through a pooler in transaction mode, or `mysql://..`, where there are no
//! messages. Without a URL it starts a server: `postgres`, `pgbouncer` (with PostgreSQL behind it) or `mysql`
//! (MariaDB). `--driver` chooses whose transactions the workers use: `sqlx`, `tokio-postgres`, `diesel-async`
//! or `sea-orm`; on MySQL only `sqlx`.

mod bank;
mod broker;
mod driver;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use bank::{Bank, OnMySql, OnPostgres};
use broker::{Published, ToBroker};
use clap::Parser;
use driver::{Accounts, Connection, Driver};
use idem::idempotent;
use idem::outbox::{OutboxError, Relay};
use idem::postgres_driver::DriverTransaction;
use idem_test_servers::Ledger;
use idem_test_servers::program::{Process, exit};
use rand::RngExt as _;
use rig_stores::servers::Servers;
use sqlx::MySqlConnection;

const ACCOUNTS: i64 = 10;
const BALANCE: i64 = 1_000_000;

/// Moves money between accounts, each transfer once, while workers are killed.
#[derive(Debug, Parser)]
struct Arguments {
    /// The database; without it, a server is started.
    #[arg(long, conflicts_with = "server")]
    url: Option<String>,
    /// The server to start.
    #[arg(long, value_parser = ["postgres", "pgbouncer", "mysql"], default_value = "postgres")]
    server: String,
    /// The driver whose transactions the workers use.
    #[arg(long, value_enum, default_value_t = Driver::Sqlx)]
    driver: Driver,
    /// How many transfers to make.
    #[arg(long, default_value_t = 1_000)]
    transfers: i64,
    /// How many worker processes.
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// The time between two kills of a worker, in milliseconds.
    #[arg(long, default_value_t = 150)]
    kill_every: u64,
    /// For the worker processes: the schema they work in.
    #[arg(long, hide = true)]
    worker_in: Option<String>,
    /// For the worker processes: the folder of the ledger.
    #[arg(long, hide = true)]
    ledger: Option<PathBuf>,
}

/// The file of the ledger with a word for each transfer that a worker tried.
const WORDS: &str = "words";

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

/// A transfer. Its accounts and its amount follow from its number.
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

/// Moves the money and enqueues a message. The caller's transaction commits the claim, all writes, the
/// message and the result together.
#[idempotent(
    key = "transfer/{transfer.id}",
    scope = "bank.transfer",
    fingerprint = (transfer.from, transfer.to, transfer.amount),
    store = bank.store,
    transaction = tx
)]
async fn transfer<T: Accounts + DriverTransaction>(
    bank: &OnPostgres,
    tx: &mut T,
    transfer: Transfer,
) -> Result<i64, TransferError> {
    let Transfer { id, from, amount, .. } = transfer;
    let which = move_money(&bank.schema, tx, transfer).await?;
    // The message contains the number of this transfer among the transfers of its account. The check of the
    // broker's messages uses this number to find messages that are missing or out of order.
    bank.outbox.enqueue(tx, &format!("account/{from}"), format!("{which} {id}")).await?;
    Ok(amount)
}

/// As [`transfer`], but on MySQL, which has no outbox.
#[idempotent(
    key = "transfer/{transfer.id}",
    scope = "bank.transfer_on_mysql",
    fingerprint = (transfer.from, transfer.to, transfer.amount),
    store = bank.store,
    transaction = tx
)]
async fn transfer_on_mysql(
    bank: &OnMySql,
    tx: &mut MySqlConnection,
    transfer: Transfer,
) -> Result<i64, TransferError> {
    move_money(&bank.schema, tx, transfer).await?;
    Ok(transfer.amount)
}

/// Writes a transfer, or fails halfway. Returns its number among the sending account's transfers.
async fn move_money(schema: &str, tx: &mut impl Accounts, transfer: Transfer) -> Result<i64, TransferError> {
    let Transfer { id, from, to, amount } = transfer;
    // The accounts are changed in the order of their numbers, so that two transfers cannot deadlock.
    let mut moves = [(from, -amount), (to, amount)];
    moves.sort_unstable();
    let mut which = 0_i64;
    for (account, change) in moves {
        let sent = tx.change(schema, account, change, i64::from(account == from)).await;
        let sent = sent.map_err(TransferError::Database)?;
        if account == from {
            which = sent;
        }
        if rand::rng().random_bool(0.02) {
            return Err(TransferError::Hiccup);
        }
    }
    // The table has no unique index, so that repeated transfers are counted.
    tx.note(schema, id).await.map_err(TransferError::Database)?;
    Ok(which)
}

/// Makes transfers, and publishes messages at the same time.
async fn work_and_publish(
    arguments: &Arguments,
    url: &str,
    schema: &str,
    ledger: &Ledger,
) -> Result<(), Failure> {
    let bank = Bank::open(url, schema).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = match &bank {
        Bank::MySql(_) => None,
        Bank::Postgres(bank) => {
            let relay = Relay::new(bank.outbox.clone(), ToBroker(ledger.clone()))
                .publish_timeout(Duration::from_millis(400))
                // Behind a pooler no notification wakes the relay.
                .poll_interval(Duration::from_millis(100))
                .backoff(Duration::from_millis(20), Duration::from_millis(200));
            Some(tokio::spawn(relay.run(async { drop(stopped.await) })))
        }
    };
    let mut connection = Connection::open(arguments.driver, url, &bank).await?;
    work(&bank, &mut connection, arguments.transfers, ledger).await?;
    drop(stop);
    if let Some(relay) = relay {
        relay.await??;
    }
    Ok(())
}

/// Tries transfers in random order, even transfers that are already made, and notes a word for each try.
/// Returns when all transfers are made and published, unless the worker is killed first.
async fn work(
    bank: &Bank,
    connection: &mut Connection,
    transfers: i64,
    ledger: &Ledger,
) -> Result<(), Failure> {
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
            ledger.add(WORDS, word)?;
        }
        if is_over(bank, transfers).await? {
            return Ok(());
        }
    }
}

/// Whether all transfers are made and published.
async fn is_over(bank: &Bank, transfers: i64) -> Result<bool, Failure> {
    let made = bank.count("count(DISTINCT id)", "effects").await?;
    Ok(made >= transfers && bank.untold().await? == 0)
}

async fn violations(
    bank: &Bank,
    transfers: i64,
    wrong: usize,
    published: &Published,
) -> Result<Vec<String>, Failure> {
    let mut found = published.violations.clone();
    let messages = i64::try_from(published.ids.len())?;
    if messages != transfers && bank.tells() {
        found.push(format!("{messages} messages for {transfers} transfers"));
    }
    let effects = bank.count("count(*)", "effects").await?;
    let distinct = bank.count("count(DISTINCT id)", "effects").await?;
    if (effects, distinct) != (transfers, transfers) {
        found.push(format!("{transfers} transfers have {effects} effects, {distinct} of them distinct"));
    }
    let sum = bank.count("sum(balance)", "accounts").await?;
    if sum != ACCOUNTS * BALANCE {
        found.push(format!("the sum is {sum} and was {}", ACCOUNTS * BALANCE));
    }
    let mut expected = vec![BALANCE; usize::try_from(ACCOUNTS)?];
    for Transfer { from, to, amount, .. } in (0..transfers).map(Transfer::number) {
        expected[usize::try_from(from)?] -= amount;
        expected[usize::try_from(to)?] += amount;
    }
    for id in 0..ACCOUNTS {
        let balance = bank.count("balance", &format!("accounts WHERE id = {id}")).await?;
        let expected = expected[usize::try_from(id)?];
        if balance != expected {
            found.push(format!("account {id} has {balance} and should have {expected}"));
        }
    }
    if wrong > 0 {
        found.push(format!("{wrong} results were another transfer's"));
    }
    Ok(found)
}

/// Starts and kills workers until every transfer is made and published. Returns how many were killed.
async fn disturb(
    bank: &Bank,
    arguments: &Arguments,
    mut start: impl FnMut() -> Process,
) -> Result<usize, Failure> {
    let mut workers: Vec<_> = (0..arguments.workers).map(|_| start()).collect();
    let mut killed = 0;
    while !is_over(bank, arguments.transfers).await? {
        tokio::time::sleep(Duration::from_millis(arguments.kill_every)).await;
        let victim = rand::rng().random_range(0..workers.len());
        // The assignment drops the old worker, which kills it.
        workers[victim] = start();
        killed += 1;
    }
    workers.into_iter().for_each(|worker| drop(worker.end()));
    Ok(killed)
}

async fn run(arguments: &Arguments, place: &str, url: &str, folder: &Path) -> Result<bool, Failure> {
    let schema = format!("idem_transfer_{}", std::process::id());
    let (bank, begin) = (Bank::found(url, &schema).await?, Instant::now());
    let driver = arguments.driver.name();
    let mut worker = Command::new(std::env::current_exe()?);
    worker.args(["--url", url, "--worker-in", &schema, "--driver", &driver]).arg("--ledger").arg(folder);
    worker.args(["--transfers", &arguments.transfers.to_string()]);
    let killed = disturb(&bank, arguments, || Process::spawn(&mut worker)).await?;
    let ledger = Ledger::new(folder.to_owned());
    let (published, mut words) = (Published::read(&ledger)?, BTreeMap::<_, usize>::new());
    for word in ledger.read(WORDS)? {
        *words.entry(word).or_default() += 1;
    }
    let count = |word: &str| words.get(word).copied().unwrap_or_default();
    let violations = violations(&bank, arguments.transfers, count("wrong"), &published).await?;
    println!(
        "{} transfers by {driver} ({place}) in {:.1?}, {killed} workers killed",
        arguments.transfers,
        begin.elapsed()
    );
    println!("  effects:             {}", bank.count("count(*)", "effects").await?);
    println!("  duplicates offered:  {} replayed, {} in flight", count("replayed"), count("in_flight"));
    println!("  bodies that failed:  {}", count("failed"));
    println!("  sum:                 {}", bank.count("sum(balance)", "accounts").await?);
    println!("  messages:            {} published, {} of them again", published.ids.len(), published.repeats);
    println!("  violations:          {}", violations.len());
    for violation in violations.iter().take(20) {
        println!("    {violation}");
    }
    bank.drop().await?;
    Ok(violations.is_empty())
}

#[tokio::main]
async fn main() -> ExitCode {
    exit(perform(&Arguments::parse()).await)
}

async fn perform(arguments: &Arguments) -> Result<bool, Failure> {
    if arguments.transfers < 1 || arguments.workers < 1 {
        return Err("at least one transfer and one worker are needed".into());
    }
    if let (Some(schema), Some(url), Some(ledger)) = (&arguments.worker_in, &arguments.url, &arguments.ledger)
    {
        work_and_publish(arguments, url, schema, &Ledger::new(ledger.clone())).await?;
        return Ok(true);
    }
    let folder = tempfile::tempdir()?;
    let (store, driver) = (arguments.url.as_deref().unwrap_or(&arguments.server), arguments.driver);
    let pooler = driver.settings_of_the_pooler();
    if store == "pgbouncer" && pooler.is_none() {
        return Err("diesel-async does not work through this pooler".into());
    }
    let (servers, url) = Servers::start(store, folder.path(), pooler.unwrap_or_default())?;
    if bank::is_mysql(&url) && !matches!(driver, Driver::Sqlx) {
        return Err("on MySQL the driver must be `sqlx`".into());
    }
    run(arguments, servers.name, &url, folder.path()).await
}
