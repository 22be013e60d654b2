//! Recovery from an earlier run that began and did not end: `recover` runs before the body.
//!
//! Owns when `recover` is called and what its answer means.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::engine::body::context::{Context, Current};
use crate::engine::body::steps::{Failed, Recorder, StepName, flush, lost};
use crate::engine::record::encoding::from_bytes;
use crate::engine::report::Event;
use crate::error::{CallId, Error, StepError, StoreError};
use idem_core::protocol::{Fence, Grant, RecordedStep, ReleaseCause, StoredResult};

/// What is known about the earlier runs of a call, for its `recover` function. Cheap to clone.
///
/// Its [`context`](Self::context) has the key, and keys for other services.
#[derive(Clone)]
pub struct Recovery {
    context: Context,
    call: CallId,
    grant: Grant,
    steps: Arc<[RecordedStep]>,
}

impl Recovery {
    /// Which attempt this is; from 2.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.grant.attempt
    }

    /// The fence of this attempt.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.grant.fence
    }

    /// The call, as its body sees it.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// As [`Context::downstream_key`]: the key that the earlier runs sent to the service of this name.
    #[must_use]
    pub fn downstream_key(&self, name: &str) -> String {
        self.context.downstream_key(name)
    }

    /// The names of the recorded steps, in the order in which they were recorded.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.steps.iter().map(|step| step.name.as_str())
    }

    /// The recorded value of a step, or `None` if no step of this name is recorded.
    ///
    /// # Errors
    ///
    /// [`Error::Step`] if the value is not stored or does not decode into `T`.
    pub fn step<T: DeserializeOwned>(&self, name: impl StepName) -> Result<Option<T>, Error> {
        let name = name.into_name();
        let Some(step) = self.steps.iter().find(|step| step.name == name) else { return Ok(None) };
        let value = match &step.result {
            StoredResult::Value(bytes) => {
                from_bytes(bytes).map_err(|fault| StepError::Undecodable { reason: fault.reason().clone() })
            }
            StoredResult::Tombstone(reason) => Err(StepError::NotStored((*reason).into())),
        };
        value.map(Some).map_err(|source| Error::Step { call: self.call.clone(), step: name.into(), source })
    }
}

impl fmt::Debug for Recovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recovery").field("context", &self.context).field("steps", &self.steps).finish()
    }
}

/// The argument for `recover`; `None` if `recover` is not due.
pub(crate) async fn begin() -> Result<Option<Recovery>, Error> {
    let Some(current) = Current::get() else { return Ok(None) };
    let Some(recorder) = current.recorder else { return Ok(None) };
    if !recorder.log().take_recovery() {
        return Ok(None);
    }
    match flush(&*recorder).await {
        Ok(()) => {
            let steps = recorder.log().earlier();
            Ok(Some(Recovery {
                context: current.context,
                call: recorder.id(),
                grant: recorder.grant(),
                steps,
            }))
        }
        Err(Failed::Lost) => Err(lost(&*recorder).await),
        Err(Failed::Store(source)) => {
            // `recover` was not called, so the next claimant must call it.
            Err(unused(&*recorder, source))
        }
    }
}

/// The error for a store that failed before the body started.
fn unused(recorder: &dyn Recorder, source: StoreError) -> Error {
    recorder.log().decide(ReleaseCause::Unused);
    let error = Error::Store { call: recorder.id(), source };
    recorder.log().refuse(&error);
    error
}

/// Returns when the body may start after `recover`, which may have taken longer than the lease: the claim is certainly held.
pub(crate) async fn confirm() -> Result<(), Error> {
    let Some(recorder) = Current::get().and_then(|current| current.recorder) else { return Ok(()) };
    let Some(confirmed) = recorder.clone().confirm() else { return Ok(()) };
    confirmed.await.map_err(|source| unused(&*recorder, source))?;
    if recorder.is_lost() { Err(lost(&*recorder).await) } else { Ok(()) }
}

/// The error if the body must not start although `recover` found nothing, because no attempts are left.
pub(crate) fn past_the_limit() -> Option<Error> {
    let recorder = Current::get()?.recorder?;
    let grant = recorder.grant();
    if !grant.recover_only {
        return None;
    }
    recorder.log().decide(ReleaseCause::NothingHappened);
    Some(Error::Exhausted { call: recorder.id(), attempts: grant.attempt.saturating_sub(1) })
}

/// Awaits a call of `recover`. Returns the result of the call if the body must not run.
pub(crate) async fn answer<T, E>(call: impl Future<Output = Result<Option<T>, E>>) -> Option<Result<T, E>> {
    // Always there, because `begin` returned a [`Recovery`].
    let current = Current::get()?;
    let recorder = current.recorder.clone()?;
    // A step inside `recover` would be recorded as a step of the body, so none may begin.
    match current.within_step(call).await {
        Ok(None) => None,
        Ok(Some(value)) => {
            recorder.log().note_recovered();
            recorder.report(Event::Found);
            Some(Ok(value))
        }
        Err(error) => {
            recorder.log().decide(ReleaseCause::Doubtful);
            Some(Err(error))
        }
    }
}
