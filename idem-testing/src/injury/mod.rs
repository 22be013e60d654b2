//! Runs a test body once without an injury, and then many times, each time with one injury at one place.
//!
//! Owns the runs and their report. `state` numbers the places and decides where the injury happens. `store`
//! and `trial` tell `state` when a run reaches a place. `panics` keeps a run from printing its panics.

mod panics;
mod state;
mod store;
mod trial;

use std::collections::HashSet;
use std::fmt;
use std::time::{Duration, Instant};

use tokio::time::timeout;

use panics::caught;
pub use state::Injury;
use state::{Place, Target};
pub use store::TrialStore;
pub use trial::Trial;

/// Upper limit of a run, in paused time.
const LONGEST_RUN: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The return type of a test body: nothing, or a `Result` whose error fails the test.
pub trait TestOutcome {
    /// Panics if this is an error.
    fn check(self);
}

impl TestOutcome for () {
    fn check(self) {}
}

impl<E: fmt::Debug> TestOutcome for Result<(), E> {
    fn check(self) {
        if let Err(error) = self {
            panic!("the test returned an error: {error:?}");
        }
    }
}

/// Runs `body` once without injuries. If this run succeeds, runs `body` again, once for each place that the
/// run passed and each injury that is possible there. The places are the operations on the trial's store that
/// [`TrialStore`] lists, and the awaits of the trial's calls. The report calls a place a point. Time is
/// paused. [`idempotent_test`](crate::idempotent_test) generates a call of this function.
///
/// ```
/// # use idem_runtime as idem;
/// use idem::Operation;
///
/// let report = idem_testing::injure("charge", async |trial| {
///     let store = trial.store();
///     let charge = Operation::new("payments.charge");
///     let call = || charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(1) });
///     assert_eq!(trial.call(call).await, 1);
/// });
/// assert!(report.broken().is_empty(), "{report}");
/// ```
///
/// The panics of the body are in the report and are not printed. A test also fails if it makes no call of the
/// trial, or if its calls do not use the trial's store. A run also fails if it does not reach the place of
/// its injury.
#[must_use = "the report says what was broken: `assert_whole` fails the test"]
pub fn injure<O: TestOutcome>(name: &str, body: impl AsyncFn(Trial) -> O) -> Report {
    let started = Instant::now();
    let mut report = Report { name: name.to_owned(), ..Report::default() };
    let (places, unharmed) = run(&body, None);
    report.places = places.len();
    report.runs = 1;
    if let Err(message) = unharmed {
        report.broken.push(Broken { at: "no injury at all".into(), message });
    } else {
        for (number, place) in places.into_iter().enumerate() {
            for &injury in place.injuries() {
                report.runs += 1;
                let target = Target { number, place, injury };
                if let (_, Err(message)) = run(&body, Some(target)) {
                    report.broken.push(Broken { at: target.to_string(), message });
                }
            }
        }
    }
    report.elapsed = started.elapsed();
    report
}

/// Executes one run. Returns the places that the run passed, and how it ended.
fn run<O: TestOutcome>(
    body: &impl AsyncFn(Trial) -> O,
    target: Option<Target>,
) -> (Vec<Place>, Result<(), String>) {
    let trial = Trial::new(target);
    let ended = caught(|panics| {
        let panics = panics.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_start(move || panics.collect_here())
            .build();
        let runtime = runtime.unwrap_or_else(|error| panic!("no runtime can be made: {error}"));
        match runtime.block_on(async { timeout(LONGEST_RUN, body(trial.clone())).await }) {
            Ok(outcome) => outcome.check(),
            Err(_) => panic!("the test does not end"),
        }
    });
    let state = trial.state();
    let ended = match (ended, state.fault()) {
        (Ok(()), Some(fault)) => Err(fault),
        (Err(message), Some(fault)) if target.is_some() => Err(format!("{fault}\n{message}")),
        (ended, _) => ended,
    };
    (state.places.clone(), ended)
}

/// The result of all runs of a test. `Display` lists each failed run with its injury and its message. A
/// repeated message is cut to its first line.
#[derive(Debug, Default)]
pub struct Report {
    name: String,
    places: usize,
    runs: usize,
    elapsed: Duration,
    broken: Vec<Broken>,
}

/// A failed run: its injury with the place, or `no injury at all`, and why it failed.
#[derive(Clone, Debug)]
struct Broken {
    at: String,
    message: String,
}

impl Report {
    /// How many store operations and awaits the uninjured run passed.
    #[must_use]
    pub fn places(&self) -> usize {
        self.places
    }

    /// How many times the body ran.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// The injury and the place of each failed run, such as `crash after at point 2, the store's complete`.
    /// The entry of a failed run without injuries is `no injury at all`.
    #[must_use]
    pub fn broken(&self) -> Vec<&str> {
        self.broken.iter().map(|broken| broken.at.as_str()).collect()
    }

    /// Prints the number of places and runs.
    ///
    /// # Panics
    ///
    /// If a run failed, with or without an injury. The message lists all failed runs.
    #[allow(clippy::print_stdout, reason = "the harness shows what a test prints")]
    #[track_caller]
    pub fn assert_whole(&self) {
        assert!(self.broken.is_empty(), "{self}");
        println!("{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, places, runs, elapsed, broken } = self;
        write!(f, "{name}: {runs} runs over {places} points in {elapsed:.2?}, {} broken", broken.len())?;
        let mut printed = HashSet::new();
        broken.iter().try_for_each(|Broken { at, message }| {
            // A repeated message was printed in full above, so its first line is enough to recognize it.
            let is_new = printed.insert(message);
            let message = if is_new { message } else { message.lines().next().unwrap_or_default() };
            write!(f, "\n* {at}: {message}")
        })
    }
}
