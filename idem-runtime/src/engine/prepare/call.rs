//! One call: all that is known about it before the first request to the store.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tracing::Span;

use super::operation::{Operation, RenderedKey};
use super::policy::SharedPolicy;
use crate::engine::body::context::{self, BackgroundWork, CallEnd, CallEvent, Context, Observation, Outcome};
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
    details: Details,
}

/// What is known of a call, whatever its store is.
pub(crate) struct Details {
    pub(crate) key: RecordKey,
    pub(crate) policy: SharedPolicy,
    /// The length of the lease, which a deadline may cut short.
    pub(crate) lease: Duration,
    pub(crate) deadline: Option<Instant>,
    /// The call whose body makes this one.
    pub(crate) enclosing: Option<Context>,
    pub(crate) fingerprint: Option<Fingerprint>,
    /// The largest encoded result that the store takes.
    pub(crate) max_result_bytes: usize,
    pub(crate) process: Process,
    pub(crate) runtime: Handle,
    pub(crate) span: Span,
    observer: Option<Arc<Observation>>,
}

impl<S> Deref for Call<S> {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.details
    }
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
        Self::checked(operation, store, key).map_err(|error| {
            if let Some(observer) = Observation::current() {
                observer.report(&CallEvent::Ended(&CallEnd::Refused(error.clone())));
            }
            Box::new(error)
        })
    }

    fn checked(operation: Operation, store: S, key: RenderedKey) -> Result<Arc<Self>, Error> {
        let observer = Observation::current();
        let runtime = runtime(operation.name())?;
        let (key, fingerprint) = operation.record_of(key)?;
        let policy = operation.policy;
        if let Some(observer) = &observer {
            observer.report(&CallEvent::Started { key: &key, ttl: policy.ttl });
        }
        let deadline = context::deadline();
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
        let details = Details {
            lease: until(deadline, policy.lease),
            key,
            policy,
            deadline,
            enclosing: context::enclosing(),
            fingerprint,
            max_result_bytes: store.max_result_bytes().unwrap_or(usize::MAX),
            process: Process::current(),
            runtime,
            span,
            observer,
        };
        Ok(Arc::new(Self { store, details }))
    }

    /// Whether this call is made in a body that holds the same key. It would wait for itself.
    pub(crate) fn is_reentrant(&self) -> bool {
        let enclosing = self.enclosing.as_ref().zip(StoreIdentity::of(&self.store));
        enclosing.is_some_and(|(call, store)| call.holds(&self.key, store))
    }
}

impl Details {
    pub(crate) fn id(&self) -> CallId {
        (&self.key).into()
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
            .with_max_attempts(policy.max_attempts.and_then(NonZeroU32::new))
            .with_recovers(policy.recovers)
    }

    /// Tells the observer of the call.
    pub(crate) fn tell(&self, event: &CallEvent<'_>) {
        if let Some(observer) = &self.observer {
            observer.report(event);
        }
    }

    /// Tells the observer that the caller gets this error.
    pub(crate) fn refuse(&self, error: Error) -> Error {
        if let Some(observer) = &self.observer {
            observer.report(&CallEvent::Ended(&CallEnd::Refused(error.clone())));
        }
        error
    }

    /// Tells the observer how the caller got its result.
    pub(crate) fn observe(&self, outcome: impl FnOnce() -> Outcome) {
        if let Some(observer) = &self.observer {
            observer.report(&CallEvent::Outcome(outcome()));
        }
    }

    /// Finishes `work` in the background.
    pub(crate) fn finish_behind(&self, kind: Work, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = background::finish(&self.process, &self.runtime, kind, work);
        if let (Some(observer), Some(unfinished)) = (&self.observer, unfinished) {
            observer.report(&CallEvent::Background(BackgroundWork::of(unfinished)));
        }
    }

    pub(crate) fn report(&self, event: &Event<'_>, attempt: u32) {
        if event.is_outcome {
            self.span.record("idem.outcome", event.name);
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
