//! Recovery points: steps of a body. The result of a step is recorded under the key of the call, and a rerun
//! of the body gets it.
//!
//! Owns what a step does. It knows the claim only as [`AnyClaim`], so nothing here is compiled for each
//! store, and only a little is compiled for each body.

mod log;
mod name;
pub(crate) mod recovery;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::body::context::{Context, context, is_unguarded};
use crate::engine::claim::claimed::{AnyClaim, confirm};
use crate::engine::record::codec::{Stored, from_bytes, to_stored};
use crate::engine::report::Event;
use crate::error::{Error, Loss, StepError};
use crate::fingerprint::{FingerprintError, fingerprint};
use idem_core::protocol::{Fingerprint, RecordedStep, StoredResult};

pub(crate) use log::{Done, Failed, Job, Log, flush};
pub use name::{MAX_STEP_NAME_BYTES, StepName};
pub use recovery::Recovery;

/// Runs one step of an idempotent body, and records its value under the key of the call before it returns the
/// value. A later run of the body gets that value without running the step.
///
/// A step never runs again after the store has acknowledged its record. If the worker dies before that, the
/// step runs again, so its effects on other services happen at least once. A key made by
/// [`downstream_key`](crate::Context::downstream_key) lets such a service detect the repetition. An error is
/// not recorded: the same run may call the step again, and a later run calls it again.
///
/// A step is identified by its name, not by its position in the code: see [`StepName`]. A run may use a name
/// again only after the step of that name ended without a value; otherwise it gets an error. A step begins
/// only after all steps that have ended are recorded; several steps may run at once. The recorded steps are
/// deleted with the record, and when the call gets a result. [`Step`] can also take an input that must not
/// change.
///
/// Outside of any call, and in a call with `transaction`, nothing can record a step. There a step is an
/// error, and its closure does not run. A task that the body spawns is outside of the call unless
/// [`Context::scope`](crate::Context::scope) carries the call into it. A call that runs unprotected because
/// its policy says so (`fail_open`, `missing_key = "run"`) runs the closures of its steps each time and
/// records nothing.
///
/// # Errors
///
/// The error of the step, or one of these errors, converted into `E`:
///
/// * [`Error::Configuration`] for a name that cannot be used, and for a step outside of any call;
/// * [`Error::LeaseLost`] if the claim is lost; the body is then dropped;
/// * [`Error::Step`] if the step has no value for any other reason.
///
/// # Panics
///
/// Only if `body` panics; nothing is recorded.
///
/// # Cancellation
///
/// A step that is dropped before it ended is not recorded. A step that is dropped while it is being recorded
/// will still be recorded, before the next step begins or the key is released. The body may then call it
/// again.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{Error, MemoryStore, Operation};
///
/// async fn place() -> Result<u32, Error> {
///     let shelf = idem::step("reserve", || async { Ok::<_, Error>(7) }).await?;
/// // A worker may die here: the next one gets the recorded shelf and reserves nothing.
///     idem::step("charge", || async { Ok::<_, Error>(()) }).await?;
///     Ok(shelf)
/// }
///
/// let store = MemoryStore::new();
/// let shelf = Operation::new("orders.place").run(&store, "order-42", place).await?;
/// assert_eq!(shelf, 7);
/// # Ok(())
/// # }
/// ```
pub fn step<T, E, N, F, B>(name: N, body: F) -> impl Future<Output = Result<T, E>>
where
    N: StepName,
    F: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: From<Error>,
{
    Step::new(name).run(body)
}

/// A step with options: see [`step`].
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{Error, MemoryStore, Operation, Step};
///
/// let (store, amounts) = (MemoryStore::new(), [500, 1499]);
/// let charge = Operation::new("orders.charge").run(&store, "order-42", || async {
///     for (index, amount) in amounts.iter().enumerate() {
///         let line = Step::new(("line", index)).fingerprint(amount);
///         line.run(|| async { Ok::<_, Error>(()) }).await?;
///     }
///     Ok::<_, Error>(())
/// });
/// charge.await
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a step does nothing until it is `run`"]
pub struct Step {
    /// The name, or why it cannot be used.
    name: Result<Arc<str>, Arc<str>>,
    input: Option<Result<Fingerprint, FingerprintError>>,
}

impl Step {
    /// A step of this name.
    pub fn new(name: impl StepName) -> Self {
        Self { name: name::checked(name), input: None }
    }

    /// Sets the input that must not change under this name from one run to the next. The SHA-256 of its
    /// canonical JSON (RFC 8785) is recorded with the value, and a rerun with another input gets
    /// [`StepError::InputChanged`]. The inputs are compared only if both runs set an input.
    pub fn fingerprint<T: Serialize + ?Sized>(self, value: &T) -> Self {
        Self { input: Some(fingerprint(value)), ..self }
    }

    /// Runs the step, or returns what an earlier run recorded.
    ///
    /// Errors, panics and cancellation are those of [`step`].
    ///
    /// # Errors
    ///
    /// The error of the step, and every [`Error`] converted into `E`.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, E>
    where
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        match Box::pin(self.begin()).await? {
            Begun::Unprotected => body().await,
            Begun::Run(turn) => {
                // No step may begin inside this step. Other steps may run at the same time.
                let value = turn.context.within_step(async { body().await }).await?;
                let stored = to_stored(&value, turn.claim.call().max_result_bytes);
                if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &stored.result)
                    && let Err(fault) = from_bytes::<T>(bytes)
                {
                    turn.claim.report(&Event::STEP_NOT_REPLAYABLE.of_step(&turn.name).because(&fault));
                }
                Box::pin(turn.record(stored)).await?;
                Ok(value)
            }
            Begun::Replay(turn, result) => Ok(turn.replayed(decoded(&result))?),
        }
    }

    async fn begin(self) -> Result<Begun, Error> {
        let context = context();
        let operation = context.as_ref().map_or("(no call)", Context::operation);
        let name = self.name.map_err(|fault| Error::configuration(operation, fault))?;
        let input = self.input.transpose();
        let input =
            input.map_err(|fault| Error::configuration(operation, format!("step {name:?}: {fault}")))?;
        let Some(context) = context else {
            return if is_unguarded() {
                Ok(Begun::Unprotected)
            } else {
                let detail = format!(
                    "step {name:?} did not run, because nothing would record it: make the step in the body of an \
                     idempotent call, or carry the call into the task with `Context::scope`"
                );
                Err(Error::configuration("(no call)", detail))
            };
        };
        let Some(claim) = context.claim().cloned() else {
            // A call that is protected and records no steps is a call in a transaction.
            if context.protected() {
                return Err(Error::Step { call: context.id(), step: name, source: StepError::Unprotected });
            }
            return Ok(Begun::Unprotected);
        };
        let turn = Turn::take(claim, context, name, input)?;
        turn.flushed().await?;
        turn.held().await?;
        match turn.claim.held().log.recorded(&turn.name) {
            None => Ok(Begun::Run(turn)),
            Some(step) if matches!((step.input, input), (Some(old), Some(new)) if old != new) => {
                Err(turn.refused(StepError::InputChanged))
            }
            Some(step) => Ok(Begun::Replay(turn, step.result)),
        }
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("name", &self.name).finish_non_exhaustive()
    }
}

enum Begun {
    /// Run the step without recording it, because its call has no claim (`fail_open`, or a missing key).
    Unprotected,
    /// Run the step and record its value.
    Run(Turn),
    /// Return this recorded value.
    Replay(Turn, StoredResult),
}

/// One use of a step's name in one run of a body. If the step returns no value, the name is free again.
struct Turn {
    claim: Arc<dyn AnyClaim>,
    context: Context,
    name: Arc<str>,
    input: Option<Fingerprint>,
    has_name: bool,
    returned: bool,
}

impl Turn {
    fn take(
        claim: Arc<dyn AnyClaim>,
        context: Context,
        name: Arc<str>,
        input: Option<Fingerprint>,
    ) -> Result<Self, Error> {
        let mut turn = Self { claim, context, name, input, has_name: false, returned: false };
        if turn.context.within_step {
            return Err(turn.refused(StepError::Nested));
        }
        if !turn.claim.held().log.take_name(&turn.name) {
            return Err(turn.refused(StepError::Repeated));
        }
        turn.has_name = true;
        Ok(turn)
    }

    /// Returns `Ok` if the closure may run: the call is not over, and its claim is certainly held. A task
    /// with the call's context can outlive the call. The claim can be lost while the worker is paused or
    /// cannot reach the store. In both cases another run may have run this step.
    async fn held(&self) -> Result<(), Error> {
        confirm(&self.claim).await.map_err(|error| self.failed(StepError::Store(error)))?;
        let lease = &self.claim.held().lease;
        if lease.is_lost() {
            return Err(lost(&*self.claim).await);
        }
        if lease.is_over() {
            return Err(Error::LeaseLost { call: self.claim.call().id(), loss: Loss::Unknown });
        }
        Ok(())
    }

    /// Loads the steps of earlier runs, and records the steps that have ended.
    async fn flushed(&self) -> Result<(), Error> {
        if self.claim.held().lease.is_lost() {
            return Err(lost(&*self.claim).await);
        }
        match flush(&*self.claim).await {
            Ok(()) => Ok(()),
            Err(Failed::Lost) => Err(lost(&*self.claim).await),
            Err(Failed::Store(error)) => Err(self.failed(StepError::Store(error))),
        }
    }

    /// Records the value of the step, which has ended. The body gets the value only if this returns `Ok`.
    async fn record(mut self, stored: Stored) -> Result<(), Error> {
        if let Some(fault) = &stored.fault {
            self.claim.report(&Event::STEP_NOT_STORED.of_step(&self.name).because(fault));
        }
        let step = RecordedStep::new(self.name.as_ref().into(), self.input, stored.result);
        self.claim.held().log.add(step);
        self.flushed().await?;
        self.returned = true;
        Ok(())
    }

    fn replayed<T>(mut self, value: Result<T, StepError>) -> Result<T, Error> {
        let value = value.map_err(|fault| self.refused(fault))?;
        self.claim.report(&Event::STEP_REPLAYED.of_step(&self.name));
        self.returned = true;
        Ok(value)
    }

    fn failed(&self, source: StepError) -> Error {
        Error::Step { call: self.claim.call().id(), step: self.name.clone(), source }
    }

    /// The error of a step that would fail in the same way if the body called it again. Notes the error in
    /// the log.
    fn refused(&self, source: StepError) -> Error {
        let error = self.failed(source);
        self.claim.held().log.refuse(&error);
        error
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.has_name {
            self.claim.held().log.leave_name(&self.name, self.returned);
        }
    }
}

fn decoded<T: DeserializeOwned>(result: &StoredResult) -> Result<T, StepError> {
    match result {
        StoredResult::Value(bytes) => from_bytes(bytes).map_err(|reason| StepError::Undecodable { reason }),
        StoredResult::Tombstone(reason) => Err(StepError::NotStored((*reason).into())),
    }
}

/// Marks the claim as lost and yields once, because the engine drops the body at that point. Only a body that
/// polls this future again by itself gets the error.
async fn lost(claim: &dyn AnyClaim) -> Error {
    claim.held().lease.lose();
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    Error::LeaseLost { call: claim.call().id(), loss: Loss::Unknown }
}
