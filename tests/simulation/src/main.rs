//! Runs histories: one seed, one kept plan, a number of seeds, or new seeds for some minutes.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use idem_simulation::history::{Report, run};
use idem_simulation::plan::Plan;
use idem_simulation::shrink::shrink;
use idem_simulation::world::Violation;

/// Looks for a history that breaks a sentence of the guarantees.
#[derive(Parser)]
struct Args {
    /// Runs this seed, and prints its history.
    #[arg(long)]
    seed: Option<u64>,
    /// Runs the plan in this file, and prints its history.
    #[arg(long)]
    plan: Option<PathBuf>,
    /// Runs this many seeds, from `--first` on.
    #[arg(long)]
    seeds: Option<u64>,
    /// Runs new seeds for this many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// The first seed; a random one unless set.
    #[arg(long)]
    first: Option<u64>,
    /// How many threads run histories; one for each core unless set.
    #[arg(long)]
    jobs: Option<usize>,
    /// Reports only violations of sentences that contain this text.
    #[arg(long)]
    about: Option<String>,
    /// Does not shrink the plan of a violation.
    #[arg(long)]
    no_shrink: bool,
    /// Writes the shrunk plan of a violation to this file.
    #[arg(long)]
    save: Option<PathBuf>,
}

impl Args {
    /// The violation to report.
    fn picks<'r>(&self, report: &'r Report) -> Option<&'r Violation> {
        let fits =
            |violation: &&Violation| self.about.as_ref().is_none_or(|text| violation.sentence.contains(text));
        report.violations.iter().find(fits)
    }
}

/// The sums over all histories.
#[derive(Default)]
struct Totals {
    histories: u64,
    calls: u64,
    requests: u64,
    faults: usize,
    runs: usize,
    findings: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.histories += 1;
        self.calls += report.calls;
        self.requests += report.requests;
        self.faults += report.faults.len();
        self.runs += report.runs;
    }
}

fn main() -> ExitCode {
    let args = Args::parse();
    let one = match (&args.seed, &args.plan) {
        (Some(seed), _) => Some(Plan::of(*seed)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).expect("the file can be read");
            Some(serde_json::from_str(&text).expect("the file is a plan"))
        }
        (None, None) => None,
    };
    if let Some(plan) = one {
        let report = run(plan.clone(), true);
        print!("{}", report.history.as_deref().unwrap_or_default());
        return args.picks(&report).map_or(ExitCode::SUCCESS, |violation| show(&plan, violation, &args));
    }
    search(&args)
}

/// Shrinks the plan of a violation, and prints the result.
fn show(plan: &Plan, violation: &Violation, args: &Args) -> ExitCode {
    println!("\nseed {}: {}: {}", plan.seed, violation.sentence, violation.detail);
    if !args.no_shrink {
        let short = shrink(plan, violation.sentence);
        let history = run(short.clone(), true).history.unwrap_or_default();
        let broken = format!("VIOLATION: {}", violation.sentence);
        let (before, after) = history.split_once(&broken).unwrap_or((&history, ""));
        println!("\nthe shortest history that was found:\n");
        println!("{before}{broken}{}", after.lines().next().unwrap_or_default());
        let text = serde_json::to_string_pretty(&short).expect("a plan serializes");
        match &args.save {
            Some(file) => std::fs::write(file, text).expect("the file can be written"),
            None => println!("\nits plan: {}", serde_json::to_string(&short).expect("a plan serializes")),
        }
    }
    ExitCode::FAILURE
}

/// The stack of a thread. In a build with few optimizations, bodies that call themselves need more than the
/// default.
const STACK: usize = 32 << 20;

fn search(args: &Args) -> ExitCode {
    let first = args.first.unwrap_or_else(|| fastrand::u64(..) >> 16);
    let (totals, stop, next) = (Mutex::new(Totals::default()), AtomicBool::new(false), AtomicU64::new(first));
    let counted = || totals.lock().expect("no history panics");
    let begin = Instant::now();
    let end = args.minutes.map(|minutes| begin + Duration::from_secs_f64(minutes * 60.0));
    let last = args.seeds.map(|seeds| first + seeds);
    println!("seeds from {first}");
    std::thread::scope(|scope| {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 0..args.jobs.unwrap_or_else(cores) {
            let work = || {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if last.is_some_and(|last| seed >= last) || end.is_some_and(|end| Instant::now() >= end) {
                        return;
                    }
                    let report = run(Plan::of(seed), false);
                    counted().add(&report);
                    let Some(violation) = args.picks(&report) else { continue };
                    counted().findings += 1;
                    println!(
                        "seed {seed} after {:.1} s: {}: {}",
                        begin.elapsed().as_secs_f64(),
                        violation.sentence,
                        violation.detail
                    );
                    stop.store(true, Ordering::Relaxed);
                    show(&Plan::of(seed), violation, args);
                }
            };
            let thread = std::thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, work).expect("a thread can be started");
        }
    });
    let seconds = begin.elapsed().as_secs_f64();
    let Totals { histories, calls, requests, faults, runs, findings } = *counted();
    println!(
        "{histories} histories, {calls} calls ({:.0} a second), {runs} runs of bodies, {requests} requests, {faults} faults, \
         {findings} findings in {seconds:.1} s",
        calls as f64 / seconds,
    );
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
