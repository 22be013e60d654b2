//! The steps of one attempt: which are recorded, which wait to be, and which this run has had.
//!
//! Owns the order in which they are recorded. What asks the store is a job that stands here and is polled by
//! whoever waits for it: a body may drop a step, or leave one unpolled while it awaits another, and neither
//! keeps the others from going on.

use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::FutureExt;
use futures_util::future::Shared;

use super::super::report::Event;
use super::Recorder;
use crate::error::{Error, StoreError};
use idem_core::protocol::{RecordedStep, ReleaseCause};

/// What is asked of the store.
pub(crate) type Job = Pin<Box<dyn Future<Output = Result<Done, Failed>> + Send>>;

/// What came of it.
#[derive(Clone)]
pub(crate) enum Done {
    /// What earlier runs recorded.
    Loaded(Arc<[RecordedStep]>),
    /// The first that waited is recorded, as this.
    Recorded(RecordedStep),
}

/// Why nothing came of it.
#[derive(Clone)]
pub(crate) enum Failed {
    /// The claim is another's.
    Lost,
    /// The store failed, and was asked for as long as that could help.
    Store(StoreError),
}

/// The steps of one attempt.
pub(crate) struct Log {
    /// Whether there are none of earlier runs.
    first: bool,
    recovery_is_due: bool,
    /// There once a step, or `recover`, has anything to do with it: most bodies have none.
    state: OnceLock<Box<Mutex<State>>>,
}

#[derive(Default)]
struct State {
    /// What earlier runs recorded; `None` until it was asked for.
    earlier: Option<Arc<[RecordedStep]>>,
    /// How many are recorded, those of earlier runs included.
    recorded: usize,
    /// Recorded and not given to the body by this run.
    kept: HashMap<String, RecordedStep>,
    /// Ended and not known to be recorded; the first may have been asked for.
    waiting: VecDeque<RecordedStep>,
    job: Option<Shared<Job>>,
    /// Whether the last job failed.
    failed: bool,
    /// The names that this run has used.
    used: HashSet<Arc<str>>,
    /// Whether `recover` is to be asked before the body.
    recovery_is_due: bool,
    /// Why the claim is to be given up, if it is not the body's own error.
    cause: Option<ReleaseCause>,
    /// What the last step refused, for who settles the call's message.
    refused: Option<Error>,
}

impl Log {
    /// Of an attempt that is the first, so that there are none yet, or of one before which `recover` is due.
    pub(crate) const fn new(first: bool, recovery_is_due: bool) -> Self {
        Self { first, recovery_is_due, state: OnceLock::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(self.state.get_or_init(|| {
            let earlier = self.first.then(Arc::default);
            Box::new(Mutex::new(State { earlier, recovery_is_due: self.recovery_is_due, ..State::default() }))
        }))
    }

    /// The state, unless no step has had anything to do with it.
    fn begun(&self) -> Option<MutexGuard<'_, State>> {
        self.state.get().map(|state| lock(state))
    }

    /// Takes a name for this run.
    pub(super) fn take_name(&self, name: &Arc<str>) -> bool {
        let mut state = self.state();
        let taken = state.used.insert(name.clone());
        if taken {
            state.refused = None;
        }
        taken
    }

    /// The step of this name gave nothing to the body, so it may be asked for again.
    pub(super) fn give_back(&self, name: &str) {
        self.state().used.remove(name);
    }

    /// What is recorded under a name that this run has not had.
    pub(super) fn recorded(&self, name: &str) -> Option<RecordedStep> {
        self.state().kept.get(name).cloned()
    }

    /// The body has been given it.
    pub(super) fn given(&self, name: &str) {
        self.state().kept.remove(name);
    }

    /// What earlier runs recorded, once that was loaded.
    pub(super) fn earlier(&self) -> Arc<[RecordedStep]> {
        self.state().earlier.clone().unwrap_or_default()
    }

    /// Puts a step down to be recorded.
    pub(super) fn add(&self, step: RecordedStep) {
        self.state().waiting.push_back(step);
    }

    /// Whether `recover` is due; it is not any more.
    pub(super) fn take_recovery(&self) -> bool {
        std::mem::take(&mut self.state().recovery_is_due)
    }

    pub(super) fn decide(&self, cause: ReleaseCause) {
        self.state().cause = Some(cause);
    }

    /// Why the claim is to be given up, if it is not the body's own error.
    pub(crate) fn cause(&self) -> Option<ReleaseCause> {
        self.begun()?.cause
    }

    pub(super) fn refuse(&self, error: &Error) {
        self.state().refused = Some(error.clone());
    }

    /// What the last step refused.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.begun()?.refused.clone()
    }

    /// Whether all that ended is recorded. `Err` where it is not, and the store was asked in vain.
    pub(crate) fn is_settled(&self) -> Result<bool, ()> {
        let Some(state) = self.begun() else { return Ok(true) };
        match (state.waiting.is_empty(), state.failed) {
            (true, _) => Ok(true),
            (false, false) => Ok(false),
            (false, true) => Err(()),
        }
    }

    /// How many will be recorded when all that ended are.
    fn end(&self) -> usize {
        let state = self.state();
        state.recorded + state.waiting.len()
    }

    /// What is to be asked of the store until `end` steps are recorded.
    fn job(&self, recorder: &dyn Recorder, end: usize) -> Option<Shared<Job>> {
        let mut state = self.state();
        if state.earlier.is_some() && state.recorded >= end {
            return None;
        }
        if state.job.is_none() {
            let job = match (&state.earlier, state.waiting.front()) {
                (None, _) => recorder.load(),
                // More than 2^32 steps cannot be made.
                (Some(_), Some(step)) => {
                    recorder.record(u32::try_from(state.recorded).unwrap_or(u32::MAX), step.clone())
                }
                (Some(_), None) => return None,
            };
            state.job = Some(job.shared());
        }
        state.job.clone()
    }

    /// Takes in what came of a job, unless another who waited for it has.
    fn take(&self, recorder: &dyn Recorder, job: &Shared<Job>, done: &Result<Done, Failed>) {
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
                recorder.report(Event::StepRecorded(&step.name));
            }
            Err(Failed::Store(error)) => {
                let step = state.waiting.front().map(|step| step.name.clone());
                drop(state);
                recorder.report(match &step {
                    Some(step) => Event::StepUnrecorded(step, error),
                    None => Event::StepsUnread(error),
                });
            }
            Err(Failed::Lost) => {}
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sees to it that earlier steps are loaded, and recorded what has ended until now.
pub(crate) async fn settle(recorder: &dyn Recorder) -> Result<(), Failed> {
    let log = recorder.log();
    let end = log.end();
    while let Some(job) = log.job(recorder, end) {
        let done = job.clone().await;
        log.take(recorder, &job, &done);
        done?;
    }
    Ok(())
}
