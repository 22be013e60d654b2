//! What one call does, in four phases. Each phase hands an object to the next phase.
//!
//! | phase | folder | begins with | ends with |
//! |---|---|---|---|
//! | prepare | [`prepare`] | an `Operation`, a store, a key | one `Call`, which has passed all checks |
//! | claim | [`claim`] | the `Call` | an `Entry`: an `Attempt` under one `Claimed`, a replay, or permission to run unprotected |
//! | body | [`body`] | the `Attempt` | the body's result, or how else it ended |
//! | record | [`record`] | the result, which the `Codec` encodes | bytes in the store, or a released claim |
//!
//! | beside the phases | what it is |
//! |---|---|
//! | [`lease`] | the lease of a claim: the caller's task renews it, and one thread if that task is blocked |
//! | [`begin`] | calls whose work is not one future: the public `begin` |
//! | [`transaction`] | calls that commit with the caller's transaction |
//! | [`retry`] | sending a request to the store again, for a limited time |
//! | [`report`] | events, metrics and observers |
//!
//! This file has the functions that take a call through the phases, and the [`Process`] of a call. A process
//! has the counts of its background work, the settings for late results, and the renewal of leases from
//! outside their calls.
//!
//! The engine knows the protocol's answers but not its rules. It knows results as bytes but not how a store
//! keeps them. Only the functions of this file and of `body/mod.rs`, and a few lines of `steps`,
//! `operation/run`, `begin` and `transaction`, are compiled for each body. Keep them short.

mod begin;
mod body;
mod claim;
mod lease;
mod prepare;
mod record;
mod report;
mod retry;
mod transaction;

use std::ops::Deref;
use std::panic::resume_unwind;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use std::time::Instant;

use tokio::runtime::Handle;
use tracing::Instrument;

use crate::error::Error;
use idem_core::Store;

use body::context::PROCESS;
use body::unprotected;
use claim::Entry;
use lease::Renewals;
use record::background::{Background, Pending, Work};

pub use begin::{Attempt, Begun, Interrupted, Replayed};
pub use body::context::{Context, Observed, context, in_another_task, observe, observed_by, with_deadline};
pub(crate) use body::context::{Surroundings, surroundings};
pub use body::steps::{MAX_STEP_NAME_BYTES, Recovery, Step, StepName, step};
pub(crate) use body::without_key;
pub(crate) use prepare::Call;
pub use prepare::Site;
pub use prepare::operation::{Operation, RulesFor, WithRecover};
pub use prepare::policy::{Policy, RetryAfter};
#[cfg(feature = "catalogue")]
pub(crate) use prepare::scope::scope_of;
pub use record::background::{Drained, LateRecording, Unrecorded, drain};
pub use record::codec::{Codec, Recordable, ResultRules, codec};
pub use report::{BackgroundWork, CallEnd, CallEvent, CallObserver, Outcome};
pub(crate) use transaction::{InTransaction, enter as enter_transaction};

/// One call that has passed all checks, or why it is refused.
type Prepared<S> = Result<Arc<Call<S>>, Box<Error>>;

/// Makes a call. The caller pins `body`. This function drops `body` as soon as the body has ended, the lease
/// is lost or the timeout is over.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
pub(crate) fn run<R, T, E, S, B>(
    call: Prepared<S>,
    codec: Codec<R, T, E>,
    body: Pin<&mut Option<B>>,
) -> impl Future<Output = R>
where
    S: Store,
    B: Future<Output = R>,
{
    async move {
        let call = match call {
            Ok(call) => call,
            Err(error) => return codec.refusal(*error),
        };
        let mut entry = match claim::enter(&call).await {
            Ok(entry) => entry,
            Err(error) => return codec.refusal(error),
        };
        // By reference, so that the future has room for one attempt and not for two.
        match &mut entry {
            Entry::Run(attempt) => body::run(&call, attempt, &codec, body).await,
            Entry::Replay(replay) => codec.replayed(&call, replay),
            Entry::Unprotected => unprotected(&call, &codec, body).await,
        }
    }
}

/// Makes a call in a separate task, which continues when the caller goes away.
pub(crate) async fn run_detached<R, T, E, S, B>(call: Prepared<S>, codec: Codec<R, T, E>, body: B) -> R
where
    R: Send + 'static,
    T: 'static,
    E: 'static,
    S: Store,
    B: Future<Output = R> + Send + 'static,
{
    let call = match call {
        Ok(call) => call,
        Err(error) => return codec.refusal(*error),
    };
    let (runtime, process, operation) =
        (call.runtime.clone(), call.process.clone(), call.key.scope().clone());
    let call = async move { run(Ok(call), codec, pin!(Some(body))).await };
    detached(&runtime, &process, operation.as_str(), codec, call).await
}

/// As [`run_detached`], for a call whose key is missing: the body runs without a claim.
pub(crate) async fn run_detached_without_key<R, T, E, B>(
    operation: Operation,
    codec: Codec<R, T, E>,
    body: B,
) -> R
where
    R: Send + 'static,
    T: 'static,
    E: 'static,
    B: Future<Output = R> + Send + 'static,
{
    let runtime = match prepare::runtime(operation.name()) {
        Ok(runtime) => runtime,
        Err(error) => return codec.refusal(error),
    };
    let (name, Surroundings { observer, process, .. }) = (operation.name().to_owned(), surroundings());
    let call = async move { without_key(&operation, &codec, observer, pin!(Some(body))).await };
    detached(&runtime, &process, &name, codec, call).await
}

/// Makes a call in a separate task. If the call panics, the panic continues in the caller.
async fn detached<R: Send + 'static, T, E>(
    runtime: &Handle,
    process: &Process,
    operation: &str,
    codec: Codec<R, T, E>,
    call: impl Future<Output = R> + Send + 'static,
) -> R {
    let pending = Pending::new(process, Work::Body);
    let task = async move {
        let _pending = pending;
        call.await
    };
    runtime.spawn(task.in_current_span()).await.unwrap_or_else(|failure| match failure.try_into_panic() {
        Ok(payload) => resume_unwind(payload),
        Err(_) => codec.refusal(Error::configuration(operation, "the runtime was shut down during the call")),
    })
}

/// The process that a call belongs to: the program, or one of the workers that a simulation runs in one
/// program.
#[derive(Clone, Default)]
pub struct Process(Option<Arc<State>>);

static PROGRAM: LazyLock<State> = LazyLock::new(|| State::new(Instant::now));

/// What is kept for all calls of one process.
pub struct State {
    pub(crate) background: Background,
    pub(crate) late_recording: RwLock<LateRecording>,
    pub(crate) renewals: Renewals,
    /// The clock by which leases are renewed from outside their calls: the machine's, which no test pauses,
    /// or tokio's in a simulation.
    pub(crate) clock: fn() -> Instant,
    /// Leases are renewed at common instants (see `Lease::renewal_at`), which are counted from this instant.
    pub(crate) epoch: Instant,
}

impl State {
    fn new(clock: fn() -> Instant) -> Self {
        Self {
            background: Background::default(),
            late_recording: RwLock::new(LateRecording::new()),
            renewals: Renewals::default(),
            clock,
            epoch: clock(),
        }
    }
}

impl Process {
    /// A separate process for a worker of a simulation. It has no renewal thread. A task renews leases from
    /// outside their calls instead, by tokio's clock, which the simulation has paused.
    #[must_use]
    pub fn simulated() -> Self {
        Self(Some(Arc::new(State::new(|| tokio::time::Instant::now().into_std()))))
    }

    /// Runs `future` in this process. A task that `future` spawns is in the program's process, unless the
    /// task enters this process too.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        match &self.0 {
            Some(_) => PROCESS.scope(self.clone(), future).await,
            None => future.await,
        }
    }

    pub(crate) const fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    pub(crate) fn late_recording(&self) -> LateRecording {
        self.late_recording.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Deref for Process {
    type Target = State;

    fn deref(&self) -> &State {
        self.0.as_deref().unwrap_or_else(|| &PROGRAM)
    }
}
