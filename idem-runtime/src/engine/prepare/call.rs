//! One call: all that is known about it before the first request to the store.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tracing::Span;

use super::operation::{Operation, RenderedKey};
use super::policy::SharedPolicy;
use crate::engine::body::context::{self, CallEnd, Context, Observation, Outcome};
use crate::engine::claim::waiters::StoreIdentity;
use crate::engine::process::Process;
use crate::engine::record::background::{self, Work};
use crate::engine::report::{self, Event, Shown};
use crate::error::{CallId, Error};
use idem_core::RecordKey;
use idem_core::Store;
use idem_core::defaults::SHORTEST_LEASE;
use idem_core::protocol::{Claim, Fingerprint, Owner};

/// One call that has passed all checks.
pub(crate) struct Call<S> {
    pub(crate) store: S,
    pub(crate) key: RecordKey,
    pub(crate) policy: SharedPolicy,
    /// The length of the lease, which a deadline may cut short.
    pub(crate) lease: Duration,
    deadline: Option<Instant>,
    /// The minimum time between two renewals.
    pub(crate) renewal_pause: Duration,
    /// The call whose body makes this one.
    pub(crate) enclosing: Option<Context>,
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) process: Process,
    pub(crate) runtime: Handle,
    pub(crate) span: Span,
    observer: Option<Arc<Observation>>,
}

/// The runtime in which a call of this operation is made.
pub(crate) fn runtime(operation: &str) -> Result<Handle, Error> {
    let refuse = |detail: &str| Error::configuration(operation, detail);
    let runtime = Handle::try_current().map_err(|_| {
        refuse("the call runs outside a tokio runtime; make it in a runtime that has time enabled")
    })?;
    if !has_time(&runtime) {
        return Err(refuse("this tokio runtime has no timers; build it with `enable_time` or `enable_all`"));
    }
    Ok(runtime)
}

impl<S: Store> Call<S> {
    /// Makes all checks that come before the first request to the store. Made in the caller's task, also for a detached
    /// body.
    pub(crate) fn new(operation: Operation, store: S, key: RenderedKey) -> Result<Arc<Self>, Box<Error>> {
        let observer = Observation::current();
        Self::checked(operation, store, key, observer.as_ref()).map_err(|error| {
            if let Some(observer) = &observer {
                observer.end(&CallEnd::Refused(error.clone()));
            }
            Box::new(error)
        })
    }

    fn checked(
        operation: Operation,
        store: S,
        key: RenderedKey,
        observer: Option<&Arc<Observation>>,
    ) -> Result<Arc<Self>, Error> {
        let runtime = runtime(operation.name())?;
        let checked = operation.check()?;
        let key = checked.record(key)?;
        if let Some(observer) = observer {
            observer.begins(&key, checked.policy.ttl);
        }
        let (deadline, policy) = (context::deadline(), checked.policy);
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
        Ok(Arc::new(Self {
            store,
            lease: until(deadline, policy.lease),
            renewal_pause: renewal_pause(deadline, policy.lease),
            key,
            policy,
            deadline,
            enclosing: context::enclosing(),
            fingerprint: checked.fingerprint,
            process: Process::current(),
            runtime,
            span,
            observer: observer.cloned(),
        }))
    }

    pub(crate) fn id(&self) -> CallId {
        (&self.key).into()
    }

    /// Whether this call is made in a body that holds the same key. It would wait for itself.
    pub(crate) fn is_reentrant(&self) -> bool {
        let identity = || StoreIdentity::of(&self.store);
        self.enclosing
            .as_ref()
            .is_some_and(|call| identity().is_some_and(|store| call.holds(&self.key, store)))
    }

    /// The largest encoded result that the store takes.
    pub(crate) fn max_result_bytes(&self) -> usize {
        self.store.max_result_bytes().unwrap_or(usize::MAX)
    }

    /// The length of a lease that starts now.
    pub(crate) fn lease_from_now(&self) -> Duration {
        until(self.deadline, self.lease)
    }

    /// The claim of this owner.
    pub(crate) fn claim(&self, owner: Owner, lease: Duration) -> Claim {
        let policy = &self.policy;
        Claim::new(owner, lease, policy.ttl)
            .with_fingerprint(self.fingerprint)
            .with_on_crash(policy.on_crash)
            .with_max_attempts(policy.attempts())
            .with_recovers(policy.recovers)
    }

    /// Whether the lease may be shorter than the operation's.
    pub(crate) const fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    /// Tells the observer how the call ended.
    pub(crate) fn end(&self, end: &CallEnd) {
        if let Some(observer) = &self.observer {
            observer.end(end);
        }
    }

    /// The same, for an error that the caller gets.
    pub(crate) fn refuse(&self, error: Error) -> Error {
        self.end(&CallEnd::Refused(error.clone()));
        error
    }

    /// Tells the observer that this call was granted its key.
    pub(crate) fn granted(&self, attempt: u32) {
        if let Some(observer) = &self.observer {
            observer.granted(&self.key, attempt);
        }
    }

    pub(crate) fn observe(&self, outcome: Outcome) {
        if let Some(observer) = &self.observer {
            observer.set(outcome);
        }
    }

    /// Finishes `work` in the background.
    pub(crate) fn finish_behind(&self, kind: Work, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = background::finish(&self.process, &self.runtime, kind, work);
        if let (Some(observer), Some(unfinished)) = (&self.observer, unfinished) {
            observer.left_behind(unfinished);
        }
    }

    pub(crate) fn report(&self, event: Event<'_>, attempt: u32) {
        if let Some(outcome) = event.outcome() {
            self.span.record("idem.outcome", outcome);
        }
        // Also where the body, the background or the caller's transaction is polled outside of the span.
        self.span.in_scope(|| report::event(&self.key, event, attempt));
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
    let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    remaining.map_or(lease, |remaining| lease.min(remaining).max(SHORTEST_LEASE))
}

/// The minimum time between two renewals. Renewals cannot extend a lease that a deadline cuts short; they only find out
/// whether the lease is lost.
fn renewal_pause(deadline: Option<Instant>, lease: Duration) -> Duration {
    if until(deadline, lease) < lease { (lease / 3).min(Duration::from_secs(1)) } else { Duration::ZERO }
}
