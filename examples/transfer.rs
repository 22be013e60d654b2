//! Money between accounts with `transaction = tx`, while the workers are killed.
//!
//! `cargo run --features postgres --example transfer -- [--url postgres://..] [--transfers N] [--workers N]
//! [--kill-every MS]` starts worker processes that make every transfer again and again, kills one every few
//! milliseconds and starts another, until each transfer was made. Then it counts: every transfer once, and the
//! sum as it was. It ends with 0, or with 1 if anything is otherwise. Without `--url` it starts a server of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use idem::{PostgresStore, idempotent, observe};
use idem_test_servers::Postgres as Server;
use rand::RngExt as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Postgres, Row as _, Transaction};

const ACCOUNTS: i64 = 10;
const BALANCE: i64 = 1_000_000;

/// Moves money between accounts, each transfer once, while workers are killed.
#[derive(Debug, Parser)]
struct Arguments {
    /// The database; without it, a server is started.
    #[arg(long)]
    url: Option<String>,
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
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
enum TransferError {
    #[error("the bank's system hiccups")]
    Hiccup,
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
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

/// Moves the money. The claim, the three statements and the result are one commit: the caller's.
#[idempotent(
    key = "transfer/{transfer.id}",
    scope = "bank.transfer",
    fingerprint = (transfer.from, transfer.to, transfer.amount),
    store = store,
    transaction = tx
)]
async fn transfer(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    transfer: Transfer,
) -> Result<i64, TransferError> {
    let Transfer { id, from, to, amount } = transfer;
    // In one order, so that no two transfers wait for each other.
    let mut moves = [(from, -amount), (to, amount)];
    moves.sort_unstable();
    for (account, change) in moves {
        sqlx::query("UPDATE accounts SET balance = balance + $2 WHERE id = $1")
            .bind(account)
            .bind(change)
            .execute(&mut **tx)
            .await?;
        if rand::rng().random_bool(0.02) {
            return Err(TransferError::Hiccup);
        }
    }
    // No unique index keeps a second one out: they are counted.
    sqlx::query("INSERT INTO effects (id) VALUES ($1)").bind(id).execute(&mut **tx).await?;
    Ok(amount)
}

async fn open(url: &str, schema: &str) -> Result<(PgPool, PostgresStore), Failure> {
    let options: PgConnectOptions = url.parse()?;
    let path = format!("SET search_path = {schema}");
    let pool = PgPoolOptions::new().max_connections(4).after_connect(move |connection, _| {
        let path = path.clone();
        Box::pin(async move { connection.execute(AssertSqlSafe(path)).await.map(drop) })
    });
    let pool = pool.connect_with(options).await?;
    let store = PostgresStore::builder(url).schema(schema).connect().await?;
    Ok((pool, store))
}

/// Makes transfers in any order, those that were made too, and prints a word for each, until it is killed or all
/// are made.
async fn work(url: &str, schema: &str, transfers: i64) -> Result<(), Failure> {
    let (pool, store) = open(url, schema).await?;
    loop {
        for _ in 0..50 {
            let next = Transfer::number(rand::rng().random_range(0..transfers));
            let mut tx = pool.begin().await?;
            let made = observe(transfer(&store, &mut tx, next)).await;
            let word = match (&made.value, made.outcome) {
                (Ok(amount), _) if *amount != next.amount => "wrong",
                (Ok(_), Some(idem::Outcome::Replayed { .. })) => "replayed",
                (Ok(_), _) => "made",
                (Err(TransferError::Idem(idem::Error::InFlight { .. })), _) => "in_flight",
                (Err(_), _) => "failed",
            };
            // Also after a failure: what failed has left nothing in it.
            tx.commit().await?;
            println!("{word}");
        }
        if count(&pool, "SELECT count(DISTINCT id) FROM effects").await? >= transfers {
            return Ok(());
        }
    }
}

async fn count(pool: &PgPool, statement: &'static str) -> Result<i64, Failure> {
    Ok(sqlx::query(statement).fetch_one(pool).await?.try_get(0)?)
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

fn spawn(url: &str, schema: &str, transfers: i64, words: &Arc<Words>) -> Result<Child, Failure> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["--url", url, "--worker-in", schema, "--transfers", &transfers.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = child.stdout.take().ok_or("the worker has no output")?;
    let words = words.clone();
    std::thread::spawn(move || {
        for word in BufReader::new(said).lines().map_while(Result::ok) {
            words.heard(&word);
        }
    });
    Ok(child)
}

/// Keeps workers working and kills them, until every transfer is made; how many were killed.
async fn disturb(
    arguments: &Arguments,
    url: &str,
    schema: &str,
    pool: &PgPool,
    words: &Arc<Words>,
) -> Result<usize, Failure> {
    let mut workers = Vec::new();
    for _ in 0..arguments.workers {
        workers.push(spawn(url, schema, arguments.transfers, words)?);
    }
    let mut killed = 0;
    while count(pool, "SELECT count(DISTINCT id) FROM effects").await? < arguments.transfers {
        tokio::time::sleep(Duration::from_millis(arguments.kill_every)).await;
        let victim = rand::rng().random_range(0..workers.len());
        workers[victim].kill()?;
        workers[victim].wait()?;
        workers[victim] = spawn(url, schema, arguments.transfers, words)?;
        killed += 1;
    }
    for mut worker in workers {
        worker.wait()?;
    }
    Ok(killed)
}

/// What is not as it must be.
async fn violations(pool: &PgPool, transfers: i64, words: &Words) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    let effects = count(pool, "SELECT count(*) FROM effects").await?;
    let distinct = count(pool, "SELECT count(DISTINCT id) FROM effects").await?;
    if (effects, distinct) != (transfers, transfers) {
        found.push(format!("{transfers} transfers have {effects} effects, {distinct} of them distinct"));
    }
    let sum = count(pool, "SELECT sum(balance)::bigint FROM accounts").await?;
    if sum != ACCOUNTS * BALANCE {
        found.push(format!("the sum is {sum} and was {}", ACCOUNTS * BALANCE));
    }
    let mut expected = vec![BALANCE; usize::try_from(ACCOUNTS)?];
    for Transfer { from, to, amount, .. } in (0..transfers).map(Transfer::number) {
        expected[usize::try_from(from)?] -= amount;
        expected[usize::try_from(to)?] += amount;
    }
    for row in pool.fetch_all("SELECT id, balance FROM accounts ORDER BY id").await? {
        let (id, balance): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
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
    let (pool, _store) = {
        let first = PgPool::connect(url).await?;
        first.execute(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).await?;
        open(url, &schema).await?
    };
    pool.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL)").await?;
    pool.execute("CREATE TABLE effects (id bigint NOT NULL)").await?;
    sqlx::query("INSERT INTO accounts SELECT n, $1 FROM generate_series(0, $2 - 1) n")
        .bind(BALANCE)
        .bind(ACCOUNTS)
        .execute(&pool)
        .await?;
    let (words, begin) = (Arc::new(Words::default()), Instant::now());
    let killed = disturb(arguments, url, &schema, &pool, &words).await?;
    let violations = violations(&pool, arguments.transfers, &words).await?;
    let heard = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    println!("{} transfers in {:.1?}, {killed} workers killed", arguments.transfers, begin.elapsed());
    println!("  effects:             {}", count(&pool, "SELECT count(*) FROM effects").await?);
    println!(
        "  duplicates offered:  {} replayed, {} in flight",
        heard(&words.replayed),
        heard(&words.in_flight)
    );
    println!("  bodies that failed:  {}", heard(&words.failed));
    println!("  sum:                 {}", count(&pool, "SELECT sum(balance)::bigint FROM accounts").await?);
    println!("  violations:          {}", violations.len());
    for violation in &violations {
        println!("    {violation}");
    }
    std::io::stdout().flush()?;
    pool.execute(AssertSqlSafe(format!("DROP SCHEMA {schema} CASCADE"))).await?;
    Ok(violations.is_empty())
}

#[tokio::main]
async fn main() -> Result<ExitCode, Failure> {
    let arguments = Arguments::parse();
    if arguments.transfers < 1 || arguments.workers < 1 {
        return Err("at least one transfer and one worker are needed".into());
    }
    if let (Some(schema), Some(url)) = (&arguments.worker_in, &arguments.url) {
        work(url, schema, arguments.transfers).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let server = if arguments.url.is_none() { Some(Server::with(&[])) } else { None };
    let url = arguments.url.clone().or_else(|| server.as_ref().map(Server::url)).unwrap_or_default();
    let holds = run(&arguments, &url).await?;
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
