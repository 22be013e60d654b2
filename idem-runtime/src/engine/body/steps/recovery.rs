//! Recovery from an earlier run that began and did not end: `recover` runs before the body.
//!
//! Owns when `recover` is called and what its answer means.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Failed, StepName, decoded, flush, lost};
use crate::engine::body::context::{Context, context};
use crate::engine::claim::claimed::{self, AnyClaim};
use crate::engine::report::Event;
use crate::error::{Error, StoreError};
use idem_core::protocol::{Fence, Grant, RecordedStep, ReleaseCause};

/// What is known about the earlier runs of a call, for its `recover` function. Cheap to clone.
///
/// Its [`context`](Self::context) has the key, and keys for other services.
#[derive(Clone, Debug)]
pub struct Recovery {
    context: Context,
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

    /// As [`Context::downstream_key`]. The earlier runs had the same key for the service of this name.
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
        let value = decoded(&step.result).map(Some);
        value.map_err(|source| Error::Step { call: self.context.id(), step: name.into(), source })
    }
}

/// The argument for `recover`; `None` if `recover` is not due.
pub(crate) async fn begin() -> Result<Option<Recovery>, Error> {
    let Some(context) = context() else { return Ok(None) };
    let Some(claim) = context.claim().cloned() else { return Ok(None) };
    if !claim.held().log.take_recovery() {
        return Ok(None);
    }
    match flush(&*claim).await {
        Ok(()) => {
            let steps = claim.held().log.earlier();
            Ok(Some(Recovery { context, grant: claim.held().grant, steps }))
        }
        Err(Failed::Lost) => Err(lost(&*claim).await),
        // `recover` was not called, so the next claimant must call it.
        Err(Failed::Store(source)) => Err(unused(&*claim, source)),
    }
}

/// The error for a store that failed before the body started.
fn unused(claim: &dyn AnyClaim, source: StoreError) -> Error {
    let error = Error::Store { call: claim.call().id(), source };
    claim.held().log.decide(ReleaseCause::Unused);
    claim.held().log.refuse(&error);
    error
}

/// The error that the call gets if the body must not start after `recover` returned `None`: `recover` may
/// have taken longer than the lease, or the attempts may be used up.
pub(crate) async fn refusal() -> Option<Error> {
    let claim = context()?.claim().cloned()?;
    if let Err(source) = claimed::confirm(&claim).await {
        return Some(unused(&*claim, source));
    }
    if claim.held().lease.is_lost() {
        return Some(lost(&*claim).await);
    }
    let grant = claim.held().grant;
    if !grant.recover_only {
        return None;
    }
    claim.held().log.decide(ReleaseCause::NothingHappened);
    Some(Error::Exhausted { call: claim.call().id(), attempts: grant.attempt.saturating_sub(1) })
}

/// Awaits `recover`. Returns the result of the idempotent call if the body must not run.
pub(crate) async fn answer<T, E>(call: impl Future<Output = Result<Option<T>, E>>) -> Option<Result<T, E>> {
    // There is always a context, because `begin` returned a [`Recovery`].
    let context = context()?;
    let claim = context.claim()?;
    // A step inside `recover` would be recorded as a step of the body, so none may begin.
    match context.within_step(call).await {
        Ok(None) => None,
        Ok(Some(value)) => {
            claim.held().log.note_recovered();
            claim.report(&Event::FOUND);
            Some(Ok(value))
        }
        Err(error) => {
            claim.held().log.decide(ReleaseCause::Doubtful);
            Some(Err(error))
        }
    }
}
