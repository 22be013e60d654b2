//! Recovery points: steps of a body whose results are recorded under its key, and given to a rerun.
//!
//! Owns what a step does. It knows the claim that it is recorded under by [`Recorder`] alone, so that nothing
//! here is compiled anew for each store, and little for each body.

mod log;
mod name;
mod recovery;
mod unrecorded;

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::{Stored, from_bytes, to_stored};
use super::context::Current;
use super::report::Event;
use crate::error::{CallId, Error, Loss, StepError};
use crate::fingerprint::{FingerprintError, fingerprint};
use idem_core::protocol::{Fingerprint, Grant, RecordedStep, StoredResult};

pub(crate) use log::{Done, Failed, Job, Log, settle};
pub use name::{MAX_STEP_NAME_BYTES, StepName};
pub use recovery::Recovery;
pub(crate) use recovery::{ask, begin as begin_recovery, past_the_limit};

/// The claim that steps are recorded under, whatever its store.
pub(crate) trait Recorder: Send + Sync {
    /// The steps of this attempt.
    fn log(&self) -> &Log;
    /// The call, for errors.
    fn id(&self) -> CallId;
    /// What was granted.
    fn grant(&self) -> Grant;
    /// The largest encoded value that is recorded.
    fn max_bytes(&self) -> usize;
    /// Says what happened.
    fn report(&self, event: Event<'_>);
    /// Whether the claim is known to be another's.
    fn is_lost(&self) -> bool;
    /// The claim is another's: the body is to be dropped.
    fn lose(&self);
    /// Reads what earlier runs recorded. What it gives does not hold this claim.
    fn load(&self) -> Job;
    /// Records a step. What it gives does not hold this claim.
    fn record(&self, position: u32, step: RecordedStep) -> Job;
}

/// Runs one step of an idempotent body and records its value under the key of the call before it returns. A later
/// run of the body gets that value, and the step does not run.
///
/// A step whose record was acknowledged never runs again. One whose worker dies before that does, so what it
/// does elsewhere happens at least once; a key made by [`downstream_key`](crate::Context::downstream_key) lets
/// the other side tell. An error is not recorded: the body may call the step again, and so does its next run.
///
/// Steps are told apart by name, not by place: see [`StepName`]. A name that this run has had is an error. A
/// step begins once those that ended before it are recorded; several may run at once. They are gone with the
/// record, and once the call has a result. [`Step`] takes an input that must not change.
///
/// Outside an idempotent call, in one that runs unprotected, and in one with `transaction`, a step runs without
/// being recorded, and says so once for each name by the event `step_unprotected`. So it does in a task that the
/// body spawns: the call is bound to its own task.
///
/// # Errors
///
/// The step's own, and turned into `E`: [`Error::Step`] where it gave no value of its own, [`Error::Configuration`]
/// for a name that cannot be used, [`Error::LeaseLost`] where the claim is another's (the body is then dropped).
///
/// # Panics
///
/// Only if `body` does; nothing is recorded.
///
/// # Cancellation
///
/// A step that is dropped before it ended is not recorded. Dropped while it is being recorded, it will be:
/// before the next step begins, or the key is given up. The body may then ask for it again.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{Error, MemoryStore, Operation};
///
/// async fn place() -> Result<u32, Error> {
///     let shelf = idem::step("reserve", || async { Ok::<_, Error>(7) }).await?;
///     // A worker may die here: the next one is given the shelf, and reserves nothing.
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

/// A step with more than a name: see [`step`].
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
    name: Result<Arc<str>, name::NameFault>,
    input: Option<Result<Fingerprint, FingerprintError>>,
    strict: bool,
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Step {
    /// A step of this name.
    pub fn new(name: impl StepName) -> Self {
        Self { name: name::checked(name), input: None, strict: false }
    }

    /// What must not change under this name from one run to the next: the SHA-256 of its canonical JSON (RFC
    /// 8785) is recorded with the value, and a rerun with another one is [`StepError::InputChanged`]. Compared
    /// where both runs have one.
    pub fn fingerprint<T: Serialize + ?Sized>(self, value: &T) -> Self {
        Self { input: Some(fingerprint(value)), ..self }
    }

    /// Refuses to run where nothing records it, as all steps of an operation with
    /// [`strict_steps`](crate::Operation::strict_steps) do: [`StepError::Unprotected`]. Outside any call, such as in a
    /// task that was spawned without [`Context::scope`](crate::Context::scope), only this can refuse it, by
    /// [`Error::Configuration`].
    pub const fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Runs the step, or gives what an earlier run recorded.
    ///
    /// Errors, panics and cancellation are those of [`step`].
    ///
    /// # Errors
    ///
    /// The step's own, and every [`Error`] turned into `E`.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, E>
    where
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        match Box::pin(self.begin()).await? {
            Begun::Unrecorded => body().await,
            Begun::Run(turn) => {
                // A step may not begin inside this one; what the body calls beside it may.
                let value = turn.current.within_step(async { body().await }).await?;
                let stored = to_stored(&value, turn.recorder.max_bytes());
                if let (true, StoredResult::Value(bytes)) = (cfg!(debug_assertions), &stored.result)
                    && let Err(fault) = from_bytes::<T>(bytes)
                {
                    turn.recorder.report(Event::StepNotReplayable(&turn.name, fault.reason()));
                }
                Box::pin(turn.record(stored)).await?;
                Ok(value)
            }
            Begun::Replay(turn, result) => {
                let value = match &result {
                    StoredResult::Value(bytes) => from_bytes(bytes)
                        .map_err(|fault| StepError::Undecodable { reason: fault.reason().clone() }),
                    StoredResult::Tombstone(reason) => Err(StepError::NotStored((*reason).into())),
                };
                Ok(turn.replayed(value)?)
            }
        }
    }

    /// Finds out what is to be done.
    async fn begin(self) -> Result<Begun, Error> {
        let current = Current::get();
        let operation = current.as_ref().map_or("(no call)", |current| current.context.operation());
        let name = self.name.map_err(|fault| Error::configuration(operation, fault.to_string()))?;
        let input = self.input.transpose();
        let input =
            input.map_err(|fault| Error::configuration(operation, format!("step {name:?}: {fault}")))?;
        let Some((recorder, current)) =
            current.as_ref().and_then(|current| Some((current.recorder.clone()?, current.clone())))
        else {
            unrecorded::allowed(current.as_ref().map(|current| &current.context), self.strict, &name)?;
            return Ok(Begun::Unrecorded);
        };
        let turn = Turn::take(recorder, current, name, input)?;
        turn.settled().await?;
        match turn.recorder.log().recorded(&turn.name) {
            None => Ok(Begun::Run(turn)),
            Some(step) if matches!((step.input, input), (Some(old), Some(new)) if old != new) => {
                Err(turn.refused(StepError::InputChanged))
            }
            Some(step) => Ok(Begun::Replay(turn, step.result)),
        }
    }
}

/// What is to be done with a step.
enum Begun {
    /// Nothing records it.
    Unrecorded,
    /// Run it.
    Run(Turn),
    /// Give this.
    Replay(Turn, StoredResult),
}

/// A name in use by one run of a body; free again where nothing came of it.
struct Turn {
    recorder: Arc<dyn Recorder>,
    current: Current,
    name: Arc<str>,
    input: Option<Fingerprint>,
    given: bool,
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Turn {
    fn take(
        recorder: Arc<dyn Recorder>,
        current: Current,
        name: Arc<str>,
        input: Option<Fingerprint>,
    ) -> Result<Self, Error> {
        let fault = if current.within_step {
            Some(StepError::Nested)
        } else if recorder.log().take_name(&name) {
            None
        } else {
            Some(StepError::Repeated)
        };
        match fault {
            Some(fault) => Err(refused(&*recorder, &name, fault)),
            None => Ok(Self { recorder, current, name, input, given: false }),
        }
    }

    /// Loads what earlier runs recorded, and has recorded what ended before.
    async fn settled(&self) -> Result<(), Error> {
        if self.recorder.is_lost() {
            return Err(lost(&*self.recorder).await);
        }
        match settle(&*self.recorder).await {
            Ok(()) => Ok(()),
            Err(Failed::Lost) => Err(lost(&*self.recorder).await),
            Err(Failed::Store(error)) => Err(failed(&*self.recorder, &self.name, StepError::Store(error))),
        }
    }

    /// The step ended; gives it to the body once it is recorded.
    async fn record(mut self, stored: Stored) -> Result<(), Error> {
        if let Some(fault) = &stored.fault {
            self.recorder.report(Event::StepNotStored(&self.name, fault));
        }
        let step = RecordedStep::new(self.name.as_ref().into(), self.input, stored.result);
        self.recorder.log().add(step);
        self.settled().await?;
        self.give();
        Ok(())
    }

    fn replayed<T>(mut self, value: Result<T, StepError>) -> Result<T, Error> {
        let value = value.map_err(|fault| self.refused(fault))?;
        self.recorder.report(Event::StepReplayed(&self.name));
        self.give();
        Ok(value)
    }

    fn give(&mut self) {
        self.given = true;
        self.recorder.log().given(&self.name);
    }

    fn refused(&self, fault: StepError) -> Error {
        refused(&*self.recorder, &self.name, fault)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.given {
            self.recorder.log().give_back(&self.name);
        }
    }
}

fn failed(recorder: &dyn Recorder, name: &Arc<str>, source: StepError) -> Error {
    Error::Step { call: recorder.id(), step: name.clone(), source }
}

/// As [`failed`], where calling again would give the same.
fn refused(recorder: &dyn Recorder, name: &Arc<str>, source: StepError) -> Error {
    let error = failed(recorder, name, source);
    recorder.log().refuse(&error);
    error
}

/// The claim is another's. Lets go of the task once, as the body is dropped when it does; a body that holds
/// on to its thread is given the error.
async fn lost(recorder: &dyn Recorder) -> Error {
    recorder.lose();
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    Error::LeaseLost { call: recorder.id(), loss: Loss::Unknown }
}
