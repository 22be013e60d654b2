//! The world of one history: the store's records, the workers, and what bodies and callers saw.
//!
//! Owns the state that everything shares. `checks` compares it with the sentences of the guarantees;
//! `network` changes it when the store does something; `body` and `caller` note in it what they see. The code
//! here does not read the engine's own state.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fastrand::Rng;
use idem_core::protocol::{self, Fence, Record, StoredResult, Timestamp, Verdict};
use idem_core::{Key, RecordKey, Scope};
use idem_runtime::__simulation::Process;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use idem_http::IdempotencyLayer;

use crate::network::SimStore;
use crate::plan::{Fault, FaultPlan, Plan, Way};

/// The number of a run of a body. Runs are numbered in the order in which they begin.
pub type RunId = usize;
/// The number of a process: each start of a worker is another process.
pub type ProcessId = usize;

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    pub plan: Arc<Plan>,
    pub keys: Arc<[RecordKey]>,
    pub start: Instant,
}

pub struct State {
    pub plan: Arc<Plan>,
    pub keys: Vec<KeyState>,
    pub processes: Vec<ProcessState>,
    /// The process of each worker, if one runs now.
    pub running: Vec<Option<ProcessId>>,
    pub runs: Vec<Run>,
    /// How many closures of steps have ended. The value of a closure is this number at its end, so no two
    /// closures have the same value.
    pub steps: u64,
    pub requests: u64,
    pub faults: Vec<FaultPlan>,
    pub outage: Vec<(Option<usize>, Instant, bool)>,
    /// By how many microseconds the store's clock differs from the simulated time.
    pub offset: i64,
    pub jumped: Option<Instant>,
    /// The time since which nothing fails any more.
    pub healed: Option<Instant>,
    /// The first violation of each sentence.
    pub violations: Vec<Violation>,
    pub calls: u64,
    /// How many transactions began, and which are open.
    pub transactions: u64,
    pub open: BTreeSet<u64>,
    /// Whether the request that is being applied is late: its sender has given up or died.
    pub is_late: bool,
    pub history: Option<String>,
    started: Instant,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The sentence that is not true.
    pub sentence: &'static str,
    pub detail: String,
}

/// One key, and all that happened under it.
#[derive(Default)]
pub struct KeyState {
    pub record: Option<Record>,
    pub floor: Fence,
    /// A life lasts from the first claim of an absent key to the end of its record.
    pub lives: Vec<Life>,
    pub grants: BTreeMap<u64, Granted>,
    /// The transaction that has taken the key.
    pub taken_by: Option<u64>,
    /// When the last transaction that had taken the key ended.
    pub taken_until: Option<Instant>,
    /// How often `recover` was called.
    pub recoveries: u32,
    /// When the key was last released, and by which process; `None` if it was granted since.
    pub freed: Option<(Instant, ProcessId)>,
    /// The claims and reads of each process.
    pub requests: BTreeMap<ProcessId, Requests>,
}

/// The claims and reads of one key that one process has sent.
#[derive(Clone, Copy, Default)]
pub struct Requests {
    pub under_way: u32,
    /// When the store last answered one of them.
    pub answered: Option<Instant>,
}

#[derive(Default)]
pub struct Life {
    pub runs: Vec<RunId>,
    pub recorded: Option<(Verdict, StoredResult)>,
    /// When the result was recorded, and the process that learns this. `None` instead of a process if the
    /// sender had given up.
    pub recorded_at: Option<(Instant, Option<ProcessId>)>,
    /// The steps that were recorded, or whose value a body got, by name.
    pub steps: BTreeMap<String, StepSeen>,
    /// How many runs had begun when an operator last resolved the key's doubt, or `recover` last said that
    /// nothing happened.
    pub cleared: usize,
    /// `recover` found a result, and neither `recover` nor an operator has contradicted it since.
    pub found: bool,
    /// The last `recover` failed, or the body that it allowed has not started.
    pub is_doubted_by_recover: bool,
    /// A call took over. Since then, `recover` has not said that nothing happened, and no operator has
    /// resolved the key's doubt.
    pub is_unsure: bool,
    /// An operator has decided about this life, or its record was deleted.
    pub operator: bool,
    /// When an operator last resolved a doubt.
    pub resolved: Option<Instant>,
}

#[derive(Clone, Default)]
pub struct StepSeen {
    pub recorded: Option<StoredResult>,
    /// The input under which the step was recorded.
    pub input: Option<u8>,
    pub acknowledged: bool,
}

#[derive(Clone)]
pub struct Granted {
    pub life: usize,
    pub process: ProcessId,
    pub started: Option<RunId>,
    /// Whether the claim arrived when nobody waited for an answer any more.
    pub is_late: bool,
    pub at: Instant,
    /// When the key was released before this grant, and by which process.
    pub freed: Option<(Instant, ProcessId)>,
    /// When the release was last sent, and when one of the steps was last sent.
    pub release_sent: Option<Instant>,
    pub step_sent: Option<Instant>,
    /// The last renewal to which the store answered that the key is in doubt: when it was sent, and when its
    /// answer came.
    pub doubt_confirmed: Option<(Instant, Instant)>,
}

/// One process of a worker.
pub struct ProcessState {
    pub worker: usize,
    pub process: Process,
    pub is_alive: bool,
    pub stopped_until: Option<Instant>,
    /// When something last went wrong between this process and the store, or when the process last stood
    /// still.
    pub disturbed: Option<Instant>,
    /// When something last went wrong between this process and the store.
    pub faulted: Option<Instant>,
    pub stood_still: Option<Instant>,
    pub wakers: Vec<Waker>,
    /// The layers of its HTTP server, by operation.
    pub layers: BTreeMap<usize, IdempotencyLayer<SimStore>>,
    pub store: SimStore,
    /// The tasks of its calls.
    pub tasks: Vec<AbortHandle>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Value,
    /// A value that cannot be stored.
    Unstorable,
    /// A value that `record_if` refuses.
    Refused,
    Error,
    Terminal,
    Panicked,
    Dropped,
}

/// One run of a body.
pub struct Run {
    pub key: usize,
    pub life: Option<usize>,
    pub process: ProcessId,
    pub fence: Option<u64>,
    pub began: Instant,
    pub ended: Option<(Instant, Ended)>,
    /// The steps that ended with a value and are not known to be recorded.
    pub loose_steps: BTreeSet<String>,
    pub is_within_step: bool,
    /// The steps whose closures returned a value.
    pub ended_steps: Vec<String>,
    /// The inputs of the steps whose closures began in this run.
    pub inputs: BTreeMap<String, Option<u8>>,
    /// The argument from which the call makes its fingerprint.
    pub argument: u8,
    /// How long the task of the run was blocked.
    pub blocked: Duration,
    pub timeout: Option<Duration>,
    pub retry_after: u64,
    /// Whether the hook for unrecorded results got the result of this run.
    pub was_unrecorded: bool,
    /// Whether the run belongs to a transaction. A transaction may be rolled back.
    pub in_transaction: bool,
    pub way: Way,
    /// Whether the run did something in the world outside.
    pub had_effect: bool,
    /// The run whose body made the call of this run.
    pub parent: Option<RunId>,
    /// Whether the lease of the run ends at a deadline.
    pub has_deadline: bool,
}

impl Run {
    /// Whether the run began and did not report an outcome.
    pub fn crashed(&self) -> bool {
        matches!(self.ended, None | Some((_, Ended::Panicked | Ended::Dropped)))
    }
}

/// Adds a line to the history, if one is written.
#[macro_export]
macro_rules! note {
    ($state:expr, $($text:tt)*) => {
        if let Some(line) = $state.line() {
            use std::fmt::Write as _;
            let _ = writeln!(line, $($text)*);
        }
    };
}

impl World {
    pub fn new(plan: Plan, with_history: bool) -> Self {
        let keys = (0..plan.operations.len()).map(record_key).collect();
        let start = Instant::now();
        let plan = Arc::new(plan);
        let state = State {
            plan: plan.clone(),
            keys: plan.operations.iter().map(|_| KeyState::default()).collect(),
            processes: Vec::new(),
            running: vec![None; plan.workers],
            runs: Vec::new(),
            steps: 0,
            requests: 0,
            faults: Vec::new(),
            outage: Vec::new(),
            offset: 0,
            jumped: None,
            healed: None,
            violations: Vec::new(),
            calls: 0,
            transactions: 0,
            open: BTreeSet::new(),
            is_late: false,
            history: with_history.then(String::new),
            started: start,
        };
        Self { state: Arc::new(Mutex::new(state)), plan, keys, start }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the operation that this key belongs to. Each operation has its own scope, with one key.
    #[must_use]
    pub fn number(&self, key: &RecordKey) -> usize {
        let number = key.scope().as_str().strip_prefix(SCOPE).and_then(|number| number.parse().ok());
        number.unwrap_or(0)
    }
}

/// The name of the one record of an operation. No error may contain the text of its key.
fn record_key(number: usize) -> RecordKey {
    let scope = Scope::new(scope(number)).expect("a scope");
    RecordKey::new(scope, Key::new(key(number)).expect("a key"))
}

const SCOPE: &str = "operation";

pub fn scope(number: usize) -> String {
    format!("{SCOPE}{number}")
}

pub fn key(number: usize) -> String {
    format!("secret-{number}")
}

impl State {
    /// Begins a new line of the history with its time, and returns the text to append to.
    pub fn line(&mut self) -> Option<&mut String> {
        let history = self.history.as_mut()?;
        let at = Instant::now() - self.started;
        let _ = write!(history, "{:>9.3} s  ", at.as_secs_f64());
        Some(history)
    }

    /// Notes that a sentence of the guarantees is not true.
    pub fn violate(&mut self, sentence: &'static str, detail: String) {
        note!(self, "VIOLATION: {sentence}: {detail}");
        if self.violations.iter().all(|known| known.sentence != sentence) {
            self.violations.push(Violation { sentence, detail });
        }
    }

    /// The store's clock.
    pub fn now(&self) -> Timestamp {
        let micros = i64::try_from((Instant::now() - self.started).as_micros()).unwrap_or(i64::MAX);
        // A date like today's, so that a clock that is set back stays above zero.
        let micros = 1_800_000_000_000_000 + micros + self.offset;
        Timestamp::from_micros(u64::try_from(micros).unwrap_or(0))
    }

    /// The record of a key, unless it has expired.
    pub fn live(&self, number: usize) -> Option<&Record> {
        let now = self.now();
        self.keys[number].record.as_ref().filter(|record| protocol::is_live(record, now))
    }

    /// Ready if this process is not stopped. Never ready if the process is dead.
    pub fn poll_awake(&mut self, process: ProcessId, cx: &Context<'_>) -> Poll<()> {
        let process = &mut self.processes[process];
        if process.is_alive && process.stopped_until.is_none() {
            return Poll::Ready(());
        }
        process.wakers.push(cx.waker().clone());
        Poll::Pending
    }

    /// Whether all went well since `since`: the process ran all the time, none of its requests to the store
    /// had a fault, and the store's clock did not jump.
    pub fn is_calm(&self, id: ProcessId, since: Instant) -> bool {
        let process = &self.processes[id];
        process.is_alive
            && process.stopped_until.is_none()
            && process.disturbed.is_none_or(|at| at < since)
            && self.jumped.is_none_or(|at| at < since)
    }

    /// What the network does to a request that is sent now. Returns the fault of the request, and how long
    /// the request and its answer take, in microseconds.
    ///
    /// The decision depends on the seed, the worker, the request and the time, and on nothing that happened
    /// before. So if something is left out of a plan, the other requests keep their faults.
    pub fn network(&mut self, plan: &Plan, worker: usize, what: &str) -> (Option<Fault>, u64, u64) {
        let at = u64::try_from((Instant::now() - self.started).as_micros()).unwrap_or(u64::MAX);
        let word =
            what.bytes().fold(worker as u64, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
        let mut rng = Rng::with_seed(plan.seed ^ at.rotate_left(20) ^ word.rotate_left(50));
        // Seeds the pauses of the engine after this request.
        fastrand::seed(rng.u64(..));
        self.requests += 1;
        let mut short = || if rng.bool() { 0 } else { rng.u64(0..3_000) };
        let (before, after) = (short(), short());
        if self.healed.is_some() {
            return (None, before, after);
        }
        let fault = if plan.faults.is_empty() {
            weather(plan, worker, what, at, &mut rng)
        } else {
            let is_it =
                |fault: &&FaultPlan| fault.worker == worker && fault.at == at && fault.request == what;
            plan.faults.iter().find(is_it).map(|fault| fault.fault)
        };
        if let Some(fault) = fault {
            self.faults.push(FaultPlan { worker, request: what.to_owned(), at, fault });
        }
        (fault, before, after)
    }
}

/// Draws the fault of a request from the plan's `Weather` at this time.
fn weather(plan: &Plan, worker: usize, what: &str, at: u64, rng: &mut Rng) -> Option<Fault> {
    let at = at / 1_000;
    let weather = plan.weather.iter().find(|weather| {
        (weather.from..weather.from + weather.lasts).contains(&at)
            && weather.worker.is_none_or(|only| only == worker)
            && weather.only.as_ref().is_none_or(|only| only == what)
    })?;
    if rng.u32(0..weather.one_in) != 0 {
        return None;
    }
    let mut drawn = rng.u32(0..weather.kinds.iter().map(|(_, weight)| weight).sum::<u32>().max(1));
    weather.kinds.iter().find_map(|(fault, weight)| {
        let is_it = drawn < *weight;
        drawn = drawn.saturating_sub(*weight);
        is_it.then_some(*fault)
    })
}
