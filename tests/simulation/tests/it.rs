//! The simulation as a test: histories are the same each time, kept findings do not come back, and the first seeds break nothing.
//!
//! The program runs many more seeds: `scripts/test simulation`.

use std::fs;
use std::path::Path;
use std::thread;

use idem_simulation::history::{self, Report};
use idem_simulation::plan::Plan;

/// How many of the first seeds run here, in a build without optimization.
const SEEDS: u64 = 300;

/// Runs a history in a thread of its own: without optimization its futures need more stack than a test has.
fn run(plan: Plan, with_history: bool) -> Report {
    let thread = thread::Builder::new().stack_size(64 * 1024 * 1024);
    let thread = thread.spawn(move || history::run(plan, with_history)).expect("a thread");
    thread.join().expect("the simulation does not panic")
}

#[test]
fn the_same_seed_has_the_same_history() {
    for seed in 0..40 {
        let history = || run(Plan::of(seed), true).history.expect("it is written");
        let first = history();
        assert!(first.lines().count() > 1, "seed {seed} has no history");
        assert_eq!(first, history(), "seed {seed}");
    }
}

#[test]
fn no_finding_that_is_kept_comes_back() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut count = 0;
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let file = entry.expect("an entry").path();
        let text = fs::read_to_string(&file).expect("the file can be read");
        let plan: Plan =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let report = run(plan, true);
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        assert!(report.violations.is_empty(), "{name}:\n{}", report.history.unwrap_or_default());
        count += 1;
    }
    assert!(count >= 15, "{count} findings are kept");
}

#[test]
fn the_first_seeds_break_no_sentence() {
    let mut faults = 0;
    for seed in 0..SEEDS {
        let report = run(Plan::of(seed), false);
        let broken = report.violations.first();
        assert!(broken.is_none(), "cargo run --release -p idem-simulation -- --seed {seed}\n{broken:?}");
        faults += report.faults.len();
    }
    assert!(faults > 1_000, "{faults} faults in {SEEDS} histories");
}
