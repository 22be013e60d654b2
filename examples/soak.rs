//! Kills, stops and continues workers that share one store, and counts effects from the outside.
//!
//! `cargo run --release --example soak -- --store sqlite --seconds 60 --seed 1`
//!
//! `--store` takes what the quickstart takes, a store that is there; or `sqlite`, `redis`, `redis-cluster` or
//! `redis-sentinel` (with those features), which it makes itself and disturbs too: Redis is killed and started
//! again on its log, the cluster's slots are moved, the sentinels' master is killed once and its replica
//! promoted, with claims and results waiting for one replica.
//!
//! Starts worker processes that call one annotated function for random keys, each effect a line in
//! a ledger and each answer a line in a log; ends some by `kill -9`, stops others past their lease
//! and continues them; then asks for every key once more. Prints one line of JSON and ends with 1
//! on any violation:
//!
//! * two answers to one key that differ, or an answer that the store does not give again;
//! * one attempt of one key started twice, or a lower fence after a higher;
//! * more bodies started again than workers in flight were killed, stopped or without their server;
//! * a key without a result at the end.

#[path = "soak/servers.rs"]
mod servers;
#[path = "shared/store.rs"]
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::{Args, Parser, Subcommand};
use futures_util::future::join_all;
use idem::{DynStore, Outcome, SqliteStore, idempotent, observe};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use serde_json::json;
use servers::Servers;

/// At the pace 1.
const LEASE: Duration = Duration::from_millis(400);

/// How many calls a worker makes at once.
const LANES: usize = 8;

type Failure = Box<dyn std::error::Error>;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    soak: Soak,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Args)]
struct Soak {
    /// The store: sqlite, redis, redis-cluster or redis-sentinel to make one, or which one.
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// How long the workers are disturbed.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// What all choices follow from; a random one, printed, unless given.
    #[arg(long)]
    seed: Option<u64>,
    /// How many keys; 200 for each second unless given. They come up one after another, so that
    /// there is always something new.
    #[arg(long)]
    keys: Option<u32>,
    /// How many worker processes.
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// How many times longer the lease is, and the time between two disturbances: more than 1 for a store that is
    /// slower than the leases.
    #[arg(long, default_value_t = 1)]
    pace: u32,
    /// Where the files go; a temporary folder that is deleted unless given.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Sub {
    /// One worker; started by the soak itself.
    #[command(hide = true)]
    Worker {
        folder: PathBuf,
        store: store::Choice,
        name: u64,
        seed: u64,
        keys: u32,
        begin: u64,
        millis: u64,
        pace: u32,
    },
}

/// The files that the processes share.
struct Shared {
    store: DynStore,
    ledger: PathBuf,
    answers: PathBuf,
    lease: Duration,
}

impl Shared {
    async fn open(folder: &Path, store: &store::Choice, pace: u32) -> Result<Self, idem::StoreError> {
        let store = match store {
            // Twenty processes on two cores may keep one waiting for long.
            store::Choice::Sqlite(file) => {
                DynStore::new(SqliteStore::builder(file).busy_timeout(Duration::from_secs(8)).open()?)
            }
            other => other.open().await?,
        };
        let (ledger, answers) = (folder.join("ledger.txt"), folder.join("answers.txt"));
        Ok(Self { store, ledger, answers, lease: LEASE * pace })
    }
}

/// The function under test: its effect is one line `KEY ATTEMPT FENCE` in the ledger.
#[idempotent(
    key = "soak/{key}",
    scope = "soak.work",
    fingerprint = amount,
    store = shared.store,
    lease = shared.lease,
    wait = wait
)]
async fn work(
    shared: &Shared,
    key: u32,
    amount: u64,
    time: Duration,
    wait: Duration,
) -> Result<String, idem::Error> {
    let context = idem::context();
    let (attempt, fence) =
        context.map_or((0, 0), |context| (context.attempt(), context.fence().map_or(0, idem::Fence::get)));
    // A ledger that cannot be written must not pass for an effect that did not happen.
    if append(&shared.ledger, &format!("{key} {attempt} {fence}\n")).is_err() {
        std::process::abort();
    }
    tokio::time::sleep(time).await;
    Ok(format!("{key}-{amount}-{fence}"))
}

fn append(file: &Path, line: &str) -> io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

const fn amount(key: u32) -> u64 {
    key as u64 * 17
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let ended = match cli.worker {
        Some(Sub::Worker { folder, store, name, seed, keys, begin, millis, pace }) => {
            let window = Window { keys, begin, millis, pace };
            worker(&folder, &store, name, seed, &window).await.map(|()| true)
        }
        None => soak(cli.soak).await,
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

/// Which keys are called for when.
struct Window {
    keys: u32,
    /// When the soak began, in milliseconds since the Unix epoch.
    begin: u64,
    /// How long it takes to come to the last key.
    millis: u64,
    /// How much slower all is than at the pace 1.
    pace: u32,
}

impl Window {
    /// A key of about the last second.
    fn draw(&self, random: &mut SmallRng) -> u32 {
        let elapsed = unix_millis().saturating_sub(self.begin);
        let per_second = u64::from(self.keys) * 1_000 / self.millis.max(1);
        let newest = u64::from(self.keys) * elapsed / self.millis.max(1);
        let key = newest.saturating_sub(random.random_range(0..=per_second));
        u32::try_from(key).unwrap_or(u32::MAX).min(self.keys - 1)
    }
}

fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Calls for random keys, several at once, until it is killed.
async fn worker(
    folder: &Path,
    store: &store::Choice,
    name: u64,
    seed: u64,
    window: &Window,
) -> Result<(), Failure> {
    let shared = connected(folder, store, window.pace).await?;
    let lanes = (0..LANES).map(|lane| {
        let shared = &shared;
        let mut random = SmallRng::seed_from_u64(seed ^ (name << 8) ^ lane as u64);
        async move {
            loop {
                let key = window.draw(&mut random);
                let time = Duration::from_millis(random.random_range(0..60));
                let wait = Duration::from_millis(if random.random_bool(0.5) { 1_000 } else { 0 });
                let called = observe(work(shared, key, amount(key), time, wait)).await;
                let how = match called.outcome {
                    Some(Outcome::Replayed { .. }) => "replayed",
                    Some(Outcome::Unrecorded { .. }) => "unrecorded",
                    _ => "executed",
                };
                let line = match called.value {
                    Ok(answer) => {
                        format!("{key} {how} {answer}\n")
                    }
                    Err(error) => format!("{key} {} -\n", error.kind()),
                };
                append(&shared.answers, &line)?;
            }
        }
    });
    let ended: Vec<io::Result<()>> = join_all(lanes).await;
    ended.into_iter().collect::<io::Result<()>>().map_err(Into::into)
}

/// The store, which may be away for a moment: that is what the soak is about.
async fn connected(folder: &Path, store: &store::Choice, pace: u32) -> Result<Shared, Failure> {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        match Shared::open(folder, store, pace).await {
            Err(error) if error.is_transient() && Instant::now() < end => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return Ok(opened?),
        }
    }
}

/// A worker process that does not outlive the soak.
struct Worker {
    process: Child,
    stopped_until: Option<Instant>,
}

impl Worker {
    fn start(folder: &Path, store: &str, name: u64, seed: u64, window: &Window) -> Result<Self, Failure> {
        let process = Command::new(std::env::current_exe()?)
            .arg("worker")
            .arg(folder)
            .arg(store)
            .args(
                [name, seed, u64::from(window.keys), window.begin, window.millis, u64::from(window.pace)]
                    .map(|number| number.to_string()),
            )
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { process, stopped_until: None })
    }

    fn signal(&self, signal: &str) -> Result<(), Failure> {
        let sent = Command::new("kill").arg(signal).arg(self.process.id().to_string()).status()?;
        if sent.success() { Ok(()) } else { Err(format!("kill {signal} failed").into()) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Default)]
struct Disturbed {
    kills: u64,
    stops: u64,
    servers: u64,
}

async fn soak(options: Soak) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(rand::random);
    eprintln!("seed {seed}");
    let temporary = tempfile::tempdir()?;
    let folder = options.folder.as_deref().unwrap_or(temporary.path());
    fs::create_dir_all(folder)?;
    let keys =
        options.keys.unwrap_or_else(|| u32::try_from(options.seconds * 200).unwrap_or(u32::MAX)).max(1);
    let (begin, millis, pace) = (unix_millis(), options.seconds * 1_000, options.pace.max(1));
    let window = Window { keys, begin, millis, pace };
    let (mut servers, url) = Servers::start(&options.store, folder)?;
    let disturbed = disturb(&options, folder, (&mut servers, &url), seed, &window).await?;
    let shared = connected(folder, &url.parse::<store::Choice>()?, pace).await?;
    let finals = settle(&shared, keys).await;
    let mut report = judge(&shared, &finals)?;
    let disturbances = usize::try_from(disturbed.kills + disturbed.stops)? + options.workers;
    // Without its server no worker can renew.
    let disturbances = disturbances + usize::try_from(disturbed.servers)? * options.workers;
    if report.takeovers > disturbances * LANES {
        report.violations.push(format!("{} takeovers of {disturbances} workers", report.takeovers));
    }
    println!(
        "{}",
        json!({
            "store": servers.name(), "seed": seed, "seconds": options.seconds, "keys": keys,
            "kills": disturbed.kills, "stops": disturbed.stops, "servers": disturbed.servers, "effects": report.effects,
            "executed": report.executed, "replays": report.replays, "refused": report.refused, "store_errors": report.store_errors, "unrecorded": report.unrecorded,
            "takeovers": report.takeovers, "violations": report.violations.len(),
        })
    );
    for violation in &report.violations {
        eprintln!("violation: {violation}");
    }
    Ok(report.violations.is_empty())
}

/// Runs the workers, and kills, stops and continues them.
async fn disturb(
    options: &Soak,
    folder: &Path,
    (servers, store): (&mut Servers, &str),
    seed: u64,
    window: &Window,
) -> Result<Disturbed, Failure> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut names = 0..;
    let mut start = || Worker::start(folder, store, names.next().unwrap_or_default(), seed, window);
    let mut workers = (0..options.workers).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    let mut disturbed = Disturbed::default();
    let begin = Instant::now();
    let end = begin + Duration::from_secs(options.seconds);
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.random_range(20..120)) * window.pace).await;
        for worker in &mut workers {
            if let Some(status) = worker.process.try_wait()? {
                return Err(format!("a worker ended by itself: {status}").into());
            }
            if worker.stopped_until.is_some_and(|until| Instant::now() >= until) {
                worker.signal("-CONT")?;
                worker.stopped_until = None;
            }
        }
        disturbed.servers += servers.disturb(begin.elapsed().as_secs_f64() / options.seconds as f64);
        let chosen = random.random_range(0..workers.len());
        if random.random_bool(0.6) {
            workers[chosen] = start()?;
            disturbed.kills += 1;
        } else if workers[chosen].stopped_until.is_none() {
            workers[chosen].signal("-STOP")?;
            let past_the_lease = (LEASE + Duration::from_millis(random.random_range(0..600))) * window.pace;
            workers[chosen].stopped_until = Some(Instant::now() + past_the_lease);
            disturbed.stops += 1;
        }
    }
    servers.settle();
    Ok(disturbed)
}

/// Asks for every key once more: the answers that all others must have been.
async fn settle(shared: &Shared, keys: u32) -> BTreeMap<u32, Result<String, idem::Error>> {
    let mut finals = BTreeMap::new();
    for chunk in (0..keys).collect::<Vec<_>>().chunks(LANES) {
        let calls =
            chunk.iter().map(|&key| work(shared, key, amount(key), Duration::ZERO, shared.lease * 20));
        finals.extend(chunk.iter().copied().zip(join_all(calls).await));
    }
    finals
}

#[derive(Default)]
struct Report {
    effects: usize,
    executed: usize,
    replays: usize,
    refused: usize,
    store_errors: usize,
    unrecorded: usize,
    takeovers: usize,
    violations: Vec<String>,
}

/// Holds ledger and answers against the final answers.
fn judge(shared: &Shared, finals: &BTreeMap<u32, Result<String, idem::Error>>) -> Result<Report, Failure> {
    let mut report = Report::default();
    for (key, answer) in finals {
        if let Err(error) = answer {
            report.violations.push(format!("key {key} has no result: {error}"));
        }
    }
    let mut attempts: BTreeMap<u32, Vec<(u32, u64)>> = BTreeMap::new();
    for line in fs::read_to_string(&shared.ledger)?.lines() {
        let mut words = line.split(' ').map(str::parse::<u64>);
        let (Some(Ok(key)), Some(Ok(attempt)), Some(Ok(fence))) = (words.next(), words.next(), words.next())
        else {
            return Err(format!("the ledger has a broken line: {line:?}").into());
        };
        report.effects += 1;
        attempts.entry(u32::try_from(key)?).or_default().push((u32::try_from(attempt)?, fence));
    }
    for (key, mut begun) in attempts {
        begun.sort_unstable();
        report.takeovers += begun.len() - 1;
        let distinct: BTreeSet<u32> = begun.iter().map(|(attempt, _)| *attempt).collect();
        if distinct.len() != begun.len() {
            report.violations.push(format!("key {key} started one attempt twice: {begun:?}"));
        }
        if !begun.is_sorted_by(|one, next| one.1 < next.1) {
            report.violations.push(format!("key {key} has fences that do not rise: {begun:?}"));
        }
    }
    for line in fs::read_to_string(&shared.answers)?.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [key, how, answer] = words[..] else {
            return Err(format!("the log of answers has a broken line: {line:?}").into());
        };
        match how {
            // The caller was told that nobody else will see this value.
            "unrecorded" => {
                report.unrecorded += 1;
                continue;
            }
            "executed" => report.executed += 1,
            "replayed" => report.replays += 1,
            "in_flight" | "lease_lost" => report.refused += 1,
            // A process stopped while it holds the file's lock keeps the others waiting.
            "store" => report.store_errors += 1,
            other => report.violations.push(format!("key {key} was answered {other}")),
        }
        let last = finals.get(&key.parse()?).and_then(|last| last.as_deref().ok());
        if answer != "-" && last != Some(answer) {
            report.violations.push(format!("key {key} was answered {answer}, and in the end {last:?}"));
        }
    }
    Ok(report)
}
