//! Orders in three recorded steps: the example kills the workers and counts from outside how often each step
//! ran.
//!
//! `cargo run -p steps -- --store sqlite --kills 500 --seed 1`
//!
//! `--store` takes the URL of a store that runs already, or the name of a store to start, such as `sqlite`,
//! `redis`, `postgres` or `mysql`. A few threads, the lanes, each work on one order after another. A lane
//! starts a worker process, which calls the annotated function below, and kills the process (`kill -9`) at a
//! random moment, again and again. It lets some of the processes run, and such a process completes the order.
//! All processes write lines to one file: `effect ORDER STEP VALUE` when a step acts, and `acknowledged ORDER
//! STEP VALUE` as soon as the step has returned. The example prints one line of JSON and ends with 1 on any
//! violation:
//!
//! * a step that ran after its record was acknowledged;
//! * two acknowledged values of one step, or an acknowledged value that no effect has;
//! * an order whose result differs from the values of its steps.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use idem::{DynStore, idempotent};
use idem_test_servers::Ledger;
use idem_test_servers::program::{Process, exit, report};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use rig_stores::Choice;
use rig_stores::servers::Servers;
use serde_json::json;

/// The lease is long enough that a running worker does not lose it on a busy machine.
const LEASE: Duration = Duration::from_millis(1_000);

/// How long a worker may print nothing.
const PATIENCE: Duration = Duration::from_secs(120);

const STEPS: [&str; 3] = ["reserve", "charge", "ship"];

/// The file in the ledger with all lines.
const LOG: &str = "steps.log";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The state of a worker.
struct Shop {
    store: DynStore,
    ledger: Ledger,
    pace: Duration,
}

/// Handles an order. Each step is recorded under the order's key, so a worker that takes over from a dead
/// worker runs only the remaining steps.
#[idempotent(
    key = "order/{order}",
    scope = "steps.place",
    store = shop.store,
    lease = LEASE,
    wait = LEASE * 60
)]
async fn place(shop: &Shop, order: u64) -> Result<Vec<u64>, idem::Error> {
    println!("began");
    let mut done = Vec::new();
    for step in STEPS {
        let value = idem::step(step, || shop.act(order, step)).await?;
        shop.write(&format!("acknowledged {order} {step} {value}"));
        done.push(value);
    }
    Ok(done)
}

impl Shop {
    /// The effect of a step: a line in a file, with the fence of the attempt. No other attempt of this order
    /// has this fence.
    async fn act(&self, order: u64, step: &str) -> Result<u64, idem::Error> {
        tokio::time::sleep(self.pace).await;
        let value = idem::context().and_then(|context| context.fence()).map_or(0, idem::Fence::get);
        self.write(&format!("effect {order} {step} {value}"));
        tokio::time::sleep(self.pace).await;
        Ok(value)
    }

    fn write(&self, line: &str) {
        // An effect without a line would look as if it had not happened.
        if self.ledger.add(LOG, line).is_err() {
            std::process::abort();
        }
    }
}

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    run: Run,
    #[command(subcommand)]
    worker: Option<Sub>,
}

#[derive(Args)]
struct Run {
    /// A store to start, such as sqlite, redis, postgres or mysql, or the URL of a store that runs already.
    #[arg(long, default_value = "sqlite")]
    store: String,
    /// How many workers are killed.
    #[arg(long, default_value_t = 500)]
    kills: u64,
    /// The seed of all random choices; a random one unless given. It is printed in any case.
    #[arg(long)]
    seed: Option<u64>,
    /// How many orders are worked on at once.
    #[arg(long, default_value_t = 6)]
    lanes: u64,
    /// The folder for the files; a temporary one, deleted at the end, unless given.
    #[arg(long)]
    folder: Option<PathBuf>,
}

#[derive(Subcommand)]
enum Sub {
    /// One worker; started by the program itself.
    #[command(hide = true)]
    Work { store: Choice, folder: PathBuf, order: u64, pace_ms: u64 },
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    exit(match cli.worker {
        Some(Sub::Work { store, folder, order, pace_ms }) => {
            work(&store, folder, order, Duration::from_millis(pace_ms)).await
        }
        None => tokio::task::block_in_place(|| run(&cli.run)),
    })
}

/// One call of [`place`], in this process.
async fn work(store: &Choice, folder: PathBuf, order: u64, pace: Duration) -> Result<bool, Failure> {
    let shop = Shop { store: store.open().await?, ledger: Ledger::new(folder), pace };
    println!("{}", serde_json::to_string(&place(&shop, order).await?)?);
    Ok(true)
}

/// Kills as many workers as `options` says, and checks the lines that they wrote.
fn run(options: &Run) -> Result<bool, Failure> {
    let seed = options.seed.unwrap_or_else(rand::random);
    let temporary = tempfile::tempdir()?;
    let folder = options.folder.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(folder)?;
    let (servers, url) = Servers::start(&options.store, folder, "")?;
    eprintln!("seed {seed}");
    let killed = AtomicU64::new(0);
    let begin = Instant::now();
    let results = std::thread::scope(|scope| -> Result<Vec<_>, Failure> {
        let lanes: Vec<_> = (0..options.lanes)
            .map(|number| {
                let (killed, url) = (&killed, &url);
                let random = SmallRng::seed_from_u64(seed.wrapping_add(number));
                let mut lane = Lane { url, folder, random, usual: Duration::from_millis(60) };
                let orders = (0..).map(move |round| round * options.lanes + number);
                scope.spawn(move || -> Result<Vec<_>, Failure> {
                    let open = orders.take_while(|_| killed.load(Ordering::SeqCst) < options.kills);
                    open.map(|order| Ok((order, lane.finish(order, killed, options.kills)?))).collect()
                })
            })
            .collect();
        let ended = lanes.into_iter().map(|lane| lane.join().map_err(|_| "a lane panicked")?);
        Ok(ended.collect::<Result<Vec<_>, _>>()?.concat())
    })?;
    let verdict = judge(&Ledger::new(folder.to_owned()), &results)?;
    let line = json!({
        "store": servers.name, "seed": seed, "kills": killed.load(Ordering::SeqCst), "orders": results.len(),
        "seconds": begin.elapsed().as_secs(), "effects": verdict.effects, "acknowledged": verdict.acknowledged,
        "repeated_before_acknowledged": verdict.repeated, "resumed": verdict.resumed,
        "violations": verdict.violations.len(),
    });
    Ok(report(&line, &verdict.violations))
}

/// A thread that works on one order after another.
struct Lane<'r> {
    url: &'r str,
    folder: &'r Path,
    random: SmallRng,
    /// How long a body takes if it is not killed: a moving average.
    usual: Duration,
}

impl Lane<'_> {
    /// Starts workers on an order until one completes it, and returns the result.
    fn finish(&mut self, order: u64, killed: &AtomicU64, most: u64) -> Result<Vec<u64>, Failure> {
        loop {
            let (mut worker, lines) = self.worker(order)?;
            let is_killed = killed.load(Ordering::SeqCst) < most && self.random.random_bool(0.9);
            let usual = self.usual.mul_f64(self.random.random_range(0.0..1.1));
            let begun = lines.recv_timeout(PATIENCE)?;
            let begin = Instant::now();
            if begun != "began" {
                // The previous worker had recorded the result, and was killed before it printed the result.
                return Ok(serde_json::from_str(&begun)?);
            }
            if let Ok(result) = lines.recv_timeout(if is_killed { usual } else { PATIENCE }) {
                self.usual = (self.usual * 3 + begin.elapsed()) / 4;
                return Ok(serde_json::from_str(&result)?);
            }
            if !is_killed || worker.status().is_some_and(|status| !status.success()) {
                return Err(format!("a worker on order {order} ended by itself").into());
            }
            drop(worker);
            killed.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A worker process, which is killed on drop, and the lines that it prints.
    fn worker(&mut self, order: u64) -> Result<(Process, Receiver<String>), Failure> {
        let pace_ms = self.random.random_range(0..6_u64);
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["work", self.url]).arg(self.folder).args([order.to_string(), pace_ms.to_string()]);
        let mut process = Process::spawn(command.stdout(Stdio::piped()));
        let output = BufReader::new(process.stdout());
        let (sender, lines) = channel();
        // The thread ends with the process.
        std::thread::spawn(move || {
            output.lines().map_while(io::Result::ok).try_for_each(|line| sender.send(line))
        });
        Ok((process, lines))
    }
}

#[derive(Default)]
struct Report {
    effects: usize,
    acknowledged: usize,
    /// How often a step's effect was repeated. A step may run more than once before it is recorded.
    repeated: usize,
    /// How often a worker got a step's value that an earlier worker had acknowledged.
    resumed: usize,
    violations: Vec<String>,
}

#[derive(Default)]
struct Seen {
    effects: Vec<u64>,
    acknowledged: Vec<u64>,
}

/// Compares the effects with the acknowledged values.
fn judge(ledger: &Ledger, results: &[(u64, Vec<u64>)]) -> Result<Report, Failure> {
    let mut report = Report::default();
    let mut seen: BTreeMap<(u64, String), Seen> = BTreeMap::new();
    for line in ledger.read(LOG)? {
        let words: Vec<&str> = line.split(' ').collect();
        let [what, order, step, value] = words[..] else {
            return Err(format!("the ledger has a broken line: {line:?}").into());
        };
        let (key, value) = ((order.parse()?, step.to_owned()), value.parse()?);
        let seen = seen.entry(key).or_default();
        if what == "effect" {
            report.effects += 1;
            report.repeated += usize::from(!seen.effects.is_empty());
            if !seen.acknowledged.is_empty() {
                report.violations.push(format!("order {order} {step} ran after it was acknowledged"));
            }
            seen.effects.push(value);
        } else {
            report.acknowledged += 1;
            report.resumed += usize::from(!seen.acknowledged.is_empty());
            if !seen.effects.contains(&value) || seen.acknowledged.iter().any(|other| *other != value) {
                report.violations.push(format!("order {order} {step} was given {value}"));
            }
            seen.acknowledged.push(value);
        }
    }
    for (order, result) in results {
        let given = STEPS.map(|step| {
            seen.get(&(*order, step.to_owned())).and_then(|seen| seen.acknowledged.first().copied())
        });
        if given.iter().flatten().copied().collect::<Vec<_>>() != *result {
            report.violations.push(format!("order {order} has {result:?}, and its steps gave {given:?}"));
        }
    }
    Ok(report)
}
