//! How a message handler's calls ended, as the engine reports it.
//!
//! Owns the observer of one handler, and the task-local through which `in_tasks` finds this observer. This
//! module decides nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::RecordKey;

use super::Progress;
use super::held_keys::{Held, HeldKeys};
use idem_runtime::Outcome;
use idem_runtime::observer::{BackgroundWork, CallEnd, CallEvent, CallObserver, observed_by};

tokio::task_local! {
    static HANDLER: Arc<Observation>;
}

/// The observer of the calls of one handler.
#[derive(Default)]
pub(crate) struct Observation {
    /// The keys that all handlers of the consumer hold. `None` outside a consumer.
    held: Option<Arc<HeldKeys>>,
    /// The redelivery horizon, and the summary that lists operations with a shorter `ttl`.
    horizon: Option<(Duration, Progress)>,
    calls: Mutex<Calls>,
}

#[derive(Default)]
struct Calls {
    outcome: Option<Outcome>,
    end: Option<CallEnd>,
    /// The key of the last call, and the call's attempt, if the call was granted.
    last: Option<(RecordKey, Option<u32>)>,
    holds: Vec<Held>,
    background: Vec<BackgroundWork>,
}

impl Observation {
    /// The observer of a handler. It adds the keys of the handler's calls to `held`, and reports operations
    /// whose `ttl` is shorter than the time in `horizon`.
    pub(crate) fn of_handler(held: &Arc<HeldKeys>, horizon: Option<(Duration, Progress)>) -> Self {
        Self { held: Some(held.clone()), horizon, calls: Mutex::default() }
    }

    /// Runs a handler. Inside the handler, [`in_tasks`](super::in_tasks) finds this observer.
    pub(crate) fn around<F: Future>(self: &Arc<Self>, handler: F) -> impl Future<Output = F::Output> {
        HANDLER.scope(self.clone(), handler)
    }

    /// The observer of the handler that runs in this task.
    pub(super) fn of_running_handler() -> Option<Arc<Self>> {
        HANDLER.try_with(Clone::clone).ok()
    }

    /// Returns the output of `call`, and two facts about the idempotent calls inside it: how the last call
    /// got its result, and how the last call that returned no value ended.
    pub(crate) async fn of_call<F: Future>(
        self: &Arc<Self>,
        call: F,
    ) -> (F::Output, Option<Outcome>, Option<CallEnd>) {
        let value = observed_by(self.clone(), call).await;
        let mut calls = self.calls();
        (value, calls.outcome.take(), calls.end.take())
    }

    /// Adds work that the handler left in the background.
    pub(super) fn left_behind(&self, work: BackgroundWork) {
        let mut calls = self.calls();
        calls.background.retain(|work| !work.is_finished());
        calls.background.push(work);
    }

    /// Frees the keys of the handler, which has ended. Returns whether another handler with one of these keys
    /// ended in the meantime.
    pub(crate) fn let_go(&self) -> bool {
        let holds = std::mem::take(&mut self.calls().holds);
        self.held.as_ref().is_some_and(|held| held.free(&holds))
    }

    pub(crate) fn last(&self) -> Option<(RecordKey, Option<u32>)> {
        self.calls().last.clone()
    }

    /// Waits for the work that the handler left in the background.
    pub(crate) async fn settled(&self) {
        loop {
            let Some(work) = self.calls().background.pop() else { return };
            work.finished().await;
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallObserver for Observation {
    fn event(&self, event: &CallEvent<'_>) {
        match event {
            CallEvent::Started { key, ttl, .. } => {
                let held = self.held.as_ref().map(|held| held.add(key));
                let mut calls = self.calls();
                calls.holds.extend(held);
                calls.last = Some(((*key).clone(), None));
                drop(calls);
                if let Some((_, progress)) = self.horizon.as_ref().filter(|(horizon, _)| ttl < horizon) {
                    progress.forgets(key.scope().as_str(), *ttl);
                }
            }
            CallEvent::Granted { key, attempt, .. } => {
                self.calls().last = Some(((*key).clone(), Some(*attempt)));
            }
            CallEvent::Outcome(outcome) => self.calls().outcome = Some(*outcome),
            CallEvent::Ended(end) => self.calls().end = Some((*end).clone()),
            CallEvent::Background(work) => self.left_behind(work.clone()),
            _ => {}
        }
    }
}
