//! Kills, stops and continues workers that share one store, and counts effects from outside.
//!
//! `cargo run --release -p soak -- --store sqlite --seconds 60 --seed 1`
//!
//! `--store` takes the URL of a store that runs already, or the name of a store to start. The soak also
//! disturbs most of the stores that it starts:
//!
//! * `sqlite`: the file is not disturbed;
//! * `redis`, `mysql` (MariaDB) and `nats-kv`: the server is killed ten times, and started again on its data
//!   half a second later;
//! * `redis-replica`: claims and results wait for a replica, which is stopped ten times for longer than a
//!   lease;
//! * `redis-cluster`: slots are moved between its masters ten times;
//! * `redis-sentinel`: the master is killed once, and its replica is promoted;
//! * `postgres`: the server is killed five times, and five times made read-only for longer than a lease;
//! * `pgbouncer`: PostgreSQL behind a pooler in transaction mode; each of the two is killed three or four
//!   times, and PostgreSQL is made read-only three times;
//! * `object`: a folder, which is not disturbed;
//! * `dynamodb`: the emulator is stopped ten times for longer than a lease.
//!
//! The soak starts worker processes that call an operation for random keys. Each effect is a line in a
//! ledger, and each answer is a line in a log; one key in eight has `on_crash = "in_doubt"`. The soak kills
//! some workers with `kill -9`, stops others for longer than their lease and continues them, and sends
//! SIGTERM to some, which then drain. Bodies panic, hang until their timeout, or fail, and after a failure
//! the key is not due for some time. Some bodies run on without their callers. Callers drop their calls, and
//! in each worker the store fails, loses answers, applies operations late, and is often down for longer than
//! a lease. At the end the soak calls every key once more, prints one line of JSON, and ends with 1 on any
//! violation:
//!
//! * two answers to one key that differ, or an answer that the store does not return again;
//! * one attempt of one key started twice, or a lower fence after a higher one;
//! * more repeated runs than disturbed calls;
//! * a repeated run without `recovered`, unless the run before it failed;
//! * after a failure, a run that began before its key was due;
//! * two runs of a key under `in_doubt`;
//! * a key without a result at the end, unless it is in doubt under that policy.

mod disturb;
mod judge;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use idem_test_servers::program::{exit, report};
use rig_stores::Choice;
use rig_stores::servers::Servers;
use serde_json::json;

use crate::worker::{Window, connected, unix_millis};

/// The lease, before it is multiplied by `--pace`.
const LEASE: Duration = Duration::from_millis(400);

/// How many calls a worker makes at once.
const LANES: usize = 8;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    soak: Soak,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Args)]
struct Soak {
    /// The store: `sqlite`, `redis`, `redis-replica`, `redis-cluster`, `redis-sentinel`, `postgres`,
    /// `pgbouncer`, `mysql`, `nats-kv`, `object` or `dynamodb` to start one, or the URL of one.
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// How long to disturb the workers.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The seed of all random choices; a random one unless given. It is printed in any case.
    #[arg(long)]
    seed: Option<u64>,
    /// How many keys; 200 for each second unless given. Workers start with the first keys and move on to new
    /// ones all the time.
    #[arg(long)]
    keys: Option<u32>,
    /// How many worker processes.
    #[arg(long, default_value_t = 8)]
    workers: usize,
    /// A factor for the lease and the time between two disturbances: more than 1 for a store that is too slow
    /// for the lease.
    #[arg(long, default_value_t = 1)]
    pace: u32,
    /// The folder for the files; a temporary one, deleted at the end, unless given.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Sub {
    /// One worker; started by the soak itself.
    #[command(hide = true)]
    Worker {
        folder: PathBuf,
        store: Choice,
        name: u64,
        seed: u64,
        #[command(flatten)]
        window: Window,
    },
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    exit(match cli.worker {
        Some(Sub::Worker { folder, store, name, seed, window }) => {
            worker::worker(&folder, &store, name, seed, &window).await.map(|()| true)
        }
        None => soak(&cli.soak).await,
    })
}

async fn soak(options: &Soak) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let temporary = tempfile::tempdir()?;
    let folder = options.folder.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder)?;
    let keys =
        options.keys.unwrap_or_else(|| u32::try_from(options.seconds * 200).unwrap_or(u32::MAX)).max(1);
    let (begin, millis, pace) = (unix_millis(), options.seconds * 1_000, options.pace.max(1));
    let window = Window { keys, begin, millis, pace };
    let (mut servers, url) = Servers::start(&options.store, folder, "")?;
    eprintln!("seed {seed}");
    let disturbed = disturb::disturb(options, folder, (&mut servers, &url), seed, &window).await?;
    let shared = Arc::new(connected(folder, &url.parse::<Choice>()?, pace).await?);
    let finals = judge::settle(&shared, keys).await;
    let mut verdict = judge::judge(&shared, &finals)?;
    let disturbances =
        usize::try_from(disturbed.kills + disturbed.stops + disturbed.ended)? + options.workers;
    // While a server is disturbed, no worker can renew its leases. So such a disturbance counts once for each
    // worker.
    let disturbances = disturbances + usize::try_from(disturbed.servers)? * options.workers;
    // In each worker, the injected faults make the store unavailable every few seconds.
    let seconds = usize::try_from(options.seconds)?;
    let outages = options.workers * seconds * 2;
    let own = ["dropped", "panicked", "timed_out", "failed"].map(|what| verdict.count(what));
    let most = (disturbances + outages) * LANES + own.iter().sum::<usize>();
    let takeovers = verdict.count("takeovers");
    if takeovers > most {
        verdict.violations.push(format!("{takeovers} takeovers, where {most} calls were disturbed"));
    }
    let mut line = json!({
        "store": servers.name, "seed": seed, "seconds": options.seconds, "keys": keys, "kills": disturbed.kills,
        "stops": disturbed.stops, "ended": disturbed.ended, "servers": disturbed.servers,
        "violations": verdict.violations.len(),
    });
    line.as_object_mut().ok_or("a line of JSON is an object")?.extend(verdict.counts());
    Ok(report(&line, &verdict.violations))
}
