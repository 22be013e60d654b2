//! One call: what is known about it before the first request to the store.

use std::cell::Cell;
use std::fmt;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tracing::Span;

use super::background::{self, Work};
use super::context::{self, CallEnd, Context, Observation, Outcome};
use super::operation::{Operation, Policy, RenderedKey};
use super::process::Process;
use super::report::{self, Event, Shown};
use super::waiters::StoreIdentity;
use crate::error::{CallId, Error};
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::defaults::SHORTEST_LEASE;
use idem_core::protocol::Fingerprint;

/// One call, as the public API hands it to the engine.
pub(crate) struct Call<S> {
    operation: Operation,
    store: S,
    key: RenderedKey,
    observer: Option<Arc<Observation>>,
    /// This field and the next two are read in the caller's task, because a detached body runs in another task.
    deadline: Option<Instant>,
    enclosing: Option<Context>,
    process: Process,
}

impl<S: Store> Call<S> {
    /// A call of `operation` with this key.
    pub(crate) fn new(operation: Operation, store: S, key: RenderedKey) -> Self {
        let (observer, deadline) = (Observation::current(), context::deadline());
        let process = Process::current();
        Self { operation, store, key, observer, deadline, enclosing: context::enclosing(), process }
    }

    /// The runtime in which the call is made.
    pub(super) fn runtime(&self) -> Result<Handle, Error> {
        let refuse = |detail: &str| Error::configuration(&self.operation_name(), detail);
        let runtime = Handle::try_current().map_err(|_| {
            refuse("there is no tokio runtime here; make the call in one that has time enabled")
        })?;
        if !has_time(&runtime) {
            return Err(refuse(
                "this tokio runtime has no timers; build it with `enable_time` or `enable_all`",
            ));
        }
        Ok(runtime)
    }

    pub(super) const fn operation(&self) -> &Operation {
        &self.operation
    }

    pub(super) fn observer(&self) -> Option<Arc<Observation>> {
        self.observer.clone()
    }

    pub(super) const fn process(&self) -> &Process {
        &self.process
    }

    pub(super) fn operation_name(&self) -> String {
        self.operation.name().to_owned()
    }

    /// Makes all checks that come before the first request to the store.
    pub(crate) fn prepare(self) -> Result<Arc<Prepared<S>>, Box<Error>> {
        let observer = self.observer.clone();
        self.checked().map_err(|error| {
            if let Some(observer) = &observer {
                observer.end(&CallEnd::Refused(error.clone()));
            }
            Box::new(error)
        })
    }

    fn checked(self) -> Result<Arc<Prepared<S>>, Error> {
        let runtime = self.runtime()?;
        let Self { operation, store, key, observer, deadline, enclosing, process } = self;
        let checked = operation.check()?;
        let key = key.map_err(|error| Error::key(checked.scope.as_str(), error))?;
        let key = RecordKey::new(checked.scope, key);
        if let Some(observer) = &observer {
            observer.begins(&key, checked.policy.ttl);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(Error::NoTimeLeft { call: (&key).into() });
        }
        let span = tracing::info_span!(
            "idempotent_call",
            idem.operation = key.scope().as_str(),
            idem.key.digest = %Shown(&key),
            idem.attempt = tracing::field::Empty,
            idem.outcome = tracing::field::Empty,
        );
        let renewal_pause = renewal_pause(deadline, checked.policy.lease);
        let policy = Policy { lease: until(deadline, checked.policy.lease), ..checked.policy };
        Ok(Arc::new(Prepared {
            store,
            key,
            policy,
            deadline,
            renewal_pause,
            enclosing,
            fingerprint: checked.fingerprint,
            process,
            runtime,
            span,
            observer,
        }))
    }
}

impl<S> fmt::Debug for Call<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("operation", &self.operation).finish_non_exhaustive()
    }
}

/// Whether this runtime, which must be the current one, has timers. Tokio reports a runtime without timers only by a
/// panic.
fn has_time(runtime: &Handle) -> bool {
    thread_local! {
        static TIMED: Cell<Option<Id>> = const { Cell::new(None) };
    }
    let id = Some(runtime.id());
    // Each thread checks a runtime only once.
    if TIMED.try_with(Cell::get).ok().flatten() == id {
        return true;
    }
    let has_time = catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_ok();
    if has_time {
        let _ = TIMED.try_with(|timed| timed.set(id));
    }
    has_time
}

/// The lease, cut short so that it ends at the deadline.
fn until(deadline: Option<Instant>, lease: Duration) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(lease, |left| lease.min(left).max(SHORTEST_LEASE))
}

/// The minimum time between two renewals. Renewals cannot extend a lease that a deadline cuts short; they only find out
/// whether the lease is lost.
fn renewal_pause(deadline: Option<Instant>, lease: Duration) -> Duration {
    if until(deadline, lease) < lease { (lease / 3).min(Duration::from_secs(1)) } else { Duration::ZERO }
}

/// One call that has passed all checks.
pub(crate) struct Prepared<S> {
    pub(super) store: S,
    pub(super) key: RecordKey,
    pub(super) policy: Policy,
    deadline: Option<Instant>,
    /// The minimum time between two renewals.
    pub(super) renewal_pause: Duration,
    /// The call whose body makes this one.
    pub(super) enclosing: Option<Context>,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) process: Process,
    pub(super) runtime: Handle,
    pub(super) span: Span,
    observer: Option<Arc<Observation>>,
}

impl<S: Store> Prepared<S> {
    pub(super) fn id(&self) -> CallId {
        (&self.key).into()
    }

    /// Whether this call is made in a body that holds the same key. It would wait for itself.
    pub(super) fn is_reentrant(&self) -> bool {
        let identity = || StoreIdentity::of(&self.store);
        self.enclosing
            .as_ref()
            .is_some_and(|call| identity().is_some_and(|store| call.holds(&self.key, store)))
    }

    /// The largest encoded result that the store takes.
    pub(super) fn max_result_bytes(&self) -> usize {
        self.store.max_result_bytes().unwrap_or(usize::MAX)
    }

    /// The length of a lease that starts now.
    pub(super) fn lease(&self) -> Duration {
        until(self.deadline, self.policy.lease)
    }

    /// Whether the lease may be shorter than the operation's.
    pub(super) const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// Tells the observer how the call ended.
    pub(super) fn end(&self, end: CallEnd) {
        if let Some(observer) = &self.observer {
            observer.end(&end);
        }
    }

    /// The same, for an error that the caller gets.
    pub(super) fn refuse(&self, error: Error) -> Error {
        self.end(CallEnd::Refused(error.clone()));
        error
    }

    /// Tells the observer that this call was granted its key.
    pub(super) fn granted(&self, attempt: u32) {
        if let Some(observer) = &self.observer {
            observer.granted(&self.key, attempt);
        }
    }

    pub(super) fn observe(&self, outcome: Outcome) {
        if let Some(observer) = &self.observer {
            observer.set(outcome);
        }
    }

    /// Finishes `work` in the background.
    pub(super) fn finish_behind(&self, kind: Work, work: impl Future<Output = ()> + Send + 'static) {
        let left = background::finish(&self.process, &self.runtime, kind, work);
        if let (Some(observer), Some(left)) = (&self.observer, left) {
            observer.left_behind(left);
        }
    }

    pub(super) fn report(&self, event: Event<'_>, attempt: u32) {
        if let Some(outcome) = event.outcome() {
            self.span.record("idem.outcome", outcome);
        }
        // Also where the body, the background or the caller's transaction is polled outside of the span.
        self.span.in_scope(|| report::event(&self.key, event, attempt));
    }
}
