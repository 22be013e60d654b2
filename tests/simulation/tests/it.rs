//! The simulation as a test: the same seed gives the same history, a few histories violate no guarantee, and
//! the findings in `regressions/` do not come back.
//!
//! The program runs many more seeds, also in each run of the tests: `scripts/test simulation`.

use std::fs;
use std::path::Path;
use std::thread;

use idem_simulation::history::{self, Report};
use idem_simulation::plan::Plan;

/// Runs a history in a thread of its own, because without optimization its futures need more stack than a
/// test has.
fn run(plan: Plan, with_history: bool) -> Report {
    let thread = thread::Builder::new().stack_size(64 * 1024 * 1024);
    let thread = thread.spawn(move || history::run(plan, with_history)).expect("a thread");
    thread.join().expect("the simulation does not panic")
}

#[test]
fn the_same_seed_has_the_same_history_and_breaks_no_sentence() {
    let mut faults = 0;
    for seed in 0..40 {
        let (first, again) = (run(Plan::of(seed), true), run(Plan::of(seed), true));
        let history = first.history.expect("it is written");
        assert!(history.lines().count() > 1, "seed {seed} has no history");
        assert!(first.violations.is_empty(), "seed {seed}:\n{history}");
        assert_eq!(Some(history), again.history, "seed {seed}");
        faults += first.faults.len();
    }
    assert!(faults > 100, "{faults} faults");
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
