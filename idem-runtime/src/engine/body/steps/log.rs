//! The steps of one attempt: which are recorded, which wait to be recorded, and which names this run has
//! used.
//!
//! Owns the order in which steps are recorded. Each request to the store is a job of the log, and every step
//! that waits for the job polls the job. So if a body drops one of its steps, or stops polling that step, the
//! other steps of the body still continue.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};

use crate::engine::claim::claimed::AnyClaim;
use crate::engine::report::Event;
use crate::error::{Error, StoreError};
use idem_core::protocol::{RecordedStep, ReleaseCause};

/// One request to the store.
pub(crate) type Job = BoxFuture<'static, Result<Done, Failed>>;

#[derive(Clone)]
pub(crate) enum Done {
    /// What earlier runs recorded.
    Loaded(Arc<[RecordedStep]>),
    /// The first waiting step is recorded. This is the step as the store has it.
    Recorded(RecordedStep),
}

#[derive(Clone)]
pub(crate) enum Failed {
    Lost,
    /// The store failed, and retries did not help.
    Store(StoreError),
}

pub(crate) struct Log {
    /// Whether this is the first attempt. If so, no earlier run has recorded steps.
    first: bool,
    /// Whether `recover` must be called before the body.
    recovery_is_due: AtomicBool,
    /// Set when a step or `recover` first needs the state; most bodies have no steps and no `recover`.
    state: OnceLock<Box<Mutex<State>>>,
}

#[derive(Default)]
struct State {
    /// The steps that earlier runs recorded; `None` until they are loaded.
    earlier: Option<Arc<[RecordedStep]>>,
    /// How many steps are recorded, including those of earlier runs.
    recorded: usize,
    /// Recorded steps that this run has not returned to the body yet.
    kept: HashMap<String, RecordedStep>,
    /// Steps that have ended and are not known to be recorded; a request for the first one may be under way.
    waiting: VecDeque<RecordedStep>,
    job: Option<Shared<Job>>,
    /// Whether `recover` returned the result.
    recovered: bool,
    /// Whether the last job failed.
    failed: bool,
    used: HashSet<Arc<str>>,
    /// The cause for which the claim must be released; `None` if the body's own result decides.
    cause: Option<ReleaseCause>,
    /// The error of the last refused step, or of a store that failed before the body started. `None` if
    /// another step has begun since. A message consumer needs this error to settle the call's message.
    refused: Option<Error>,
}

impl Log {
    pub(crate) const fn new(first: bool, recovery_is_due: bool) -> Self {
        Self { first, recovery_is_due: AtomicBool::new(recovery_is_due), state: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(self.state.get_or_init(|| {
            let earlier = self.first.then(Arc::default);
            Box::new(Mutex::new(State { earlier, ..State::default() }))
        }))
    }

    /// The state; `None` if nothing has needed it yet.
    fn begun(&self) -> Option<MutexGuard<'_, State>> {
        self.state.get().map(|state| lock(state))
    }

    /// Reserves a name for a step of this run; `false` if another step of this run has the name.
    pub(crate) fn take_name(&self, name: &Arc<str>) -> bool {
        let mut state = self.state();
        let is_free = state.used.insert(name.clone());
        if is_free {
            state.refused = None;
        }
        is_free
    }

    /// The recorded step of this name, if this run has not returned it yet.
    pub(crate) fn recorded(&self, name: &str) -> Option<RecordedStep> {
        self.state().kept.get(name).cloned()
    }

    /// The step of this name is over. `returned` says whether the body got the step's value. If not, the body
    /// may call the step again.
    pub(crate) fn leave_name(&self, name: &str, returned: bool) {
        let mut state = self.state();
        if returned {
            state.kept.remove(name);
        } else {
            state.used.remove(name);
        }
    }

    /// The steps that earlier runs recorded; empty until they are loaded.
    pub(crate) fn earlier(&self) -> Arc<[RecordedStep]> {
        self.state().earlier.clone().unwrap_or_default()
    }

    pub(crate) fn add(&self, step: RecordedStep) {
        self.state().waiting.push_back(step);
    }

    /// Returns whether `recover` is due, and notes that it is not due any more.
    pub(crate) fn take_recovery(&self) -> bool {
        self.recovery_is_due.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn decide(&self, cause: ReleaseCause) {
        self.state().cause = Some(cause);
    }

    pub(crate) fn cause(&self) -> Option<ReleaseCause> {
        self.begun()?.cause
    }

    pub(crate) fn refuse(&self, error: &Error) {
        self.state().refused = Some(error.clone());
    }

    pub(crate) fn refused(&self) -> Option<Error> {
        self.begun()?.refused.clone()
    }

    /// Whether all steps that have ended are recorded. `Err` if some are not recorded, and the last request
    /// to the store failed.
    pub(crate) fn is_flushed(&self) -> Result<bool, ()> {
        let Some(state) = self.begun() else { return Ok(true) };
        match (state.waiting.is_empty(), state.failed) {
            (true, _) => Ok(true),
            (false, false) => Ok(false),
            (false, true) => Err(()),
        }
    }

    pub(crate) fn note_recovered(&self) {
        self.state().recovered = true;
    }

    pub(crate) fn is_recovered(&self) -> bool {
        self.begun().is_some_and(|state| state.recovered)
    }

    /// The number of recorded steps once the waiting steps are recorded, too.
    fn end(&self) -> usize {
        let state = self.state();
        state.recorded + state.waiting.len()
    }

    /// The next request to the store until `end` steps are recorded. It loads the steps of earlier runs, or
    /// records the first waiting step. `None` if no request is needed.
    fn job(&self, claim: &dyn AnyClaim, end: usize) -> Option<Shared<Job>> {
        let mut state = self.state();
        if state.earlier.is_some() && state.recorded >= end {
            return None;
        }
        if state.job.is_none() {
            let job = match (&state.earlier, state.waiting.front()) {
                (None, _) => claim.load(),
                // A call cannot have more than 2^32 steps.
                (Some(_), Some(step)) => {
                    claim.record(u32::try_from(state.recorded).unwrap_or(u32::MAX), step.clone())
                }
                (Some(_), None) => return None,
            };
            state.job = Some(job.shared());
        }
        state.job.clone()
    }

    /// Applies the result of a job, unless another waiter has already applied it.
    fn take(&self, claim: &dyn AnyClaim, job: &Shared<Job>, done: &Result<Done, Failed>) {
        let mut state = self.state();
        if !state.job.as_ref().is_some_and(|current| current.ptr_eq(job)) {
            return;
        }
        state.job = None;
        state.failed = done.is_err();
        match done {
            Ok(Done::Loaded(steps)) => {
                state.recorded = steps.len();
                state.kept = steps.iter().map(|step| (step.name.clone(), step.clone())).collect();
                state.earlier = Some(steps.clone());
            }
            Ok(Done::Recorded(step)) => {
                state.waiting.pop_front();
                state.recorded += 1;
                state.kept.insert(step.name.clone(), step.clone());
                drop(state);
                claim.report(&Event::STEP_RECORDED.of_step(&step.name));
            }
            Err(Failed::Store(error)) => {
                let step = state.waiting.front().map(|step| step.name.clone());
                drop(state);
                claim.report(&match &step {
                    Some(step) => Event::STEP_UNRECORDED.of_step(step).by(error),
                    None => Event::STEPS_UNREAD.by(error),
                });
            }
            Err(Failed::Lost) => {}
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Loads the steps of earlier runs, and records all steps that have ended until now.
pub(crate) async fn flush(claim: &dyn AnyClaim) -> Result<(), Failed> {
    let log = &claim.held().log;
    let end = log.end();
    while let Some(job) = log.job(claim, end) {
        let done = job.clone().await;
        log.take(claim, &job, &done);
        done?;
    }
    Ok(())
}
