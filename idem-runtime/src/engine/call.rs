//! One call: what is known of it before anything is asked of the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;
use tracing::Span;

use super::background;
use super::operation::{Operation, Policy, RenderedKey, SHORTEST_LEASE};
use super::report::{self, Event};
use crate::context::{self, Ending, Observation, Outcome};
use crate::error::{CallId, Error};
use crate::key::RecordKey;
use crate::protocol::Fingerprint;
use crate::store::Store;

/// One call, as its face hands it over.
pub(crate) struct Call<S> {
    operation: Operation,
    store: S,
    key: RenderedKey,
    observer: Option<Arc<Observation>>,
}

impl<S: Store> Call<S> {
    /// The call of `operation` with this key.
    pub(crate) fn new(operation: Operation, store: S, key: RenderedKey) -> Self {
        Self { operation, store, key, observer: Observation::current() }
    }

    /// The runtime the call is made in.
    pub(super) fn runtime(&self) -> Result<Handle, Error> {
        Handle::try_current().map_err(|_| {
            Error::configuration(
                &self.operation_name(),
                "there is no tokio runtime here; make the call in one that has time enabled",
            )
        })
    }

    pub(super) fn operation_name(&self) -> String {
        self.operation.name().to_owned()
    }

    /// Checks everything that can be wrong before the store is asked.
    pub(crate) fn prepare(self) -> Result<Arc<Prepared<S>>, Box<Error>> {
        let observer = self.observer.clone();
        self.checked().map_err(|error| {
            if let Some(observer) = &observer {
                observer.end(Ending::Refused(error.clone()));
            }
            Box::new(error)
        })
    }

    fn checked(self) -> Result<Arc<Prepared<S>>, Error> {
        let runtime = self.runtime()?;
        let Self { operation, store, key, observer } = self;
        let checked = operation.check()?;
        if let Some(observer) = &observer {
            observer.keeps_for(checked.scope.as_str(), checked.policy.ttl);
        }
        let key = key.map_err(|error| Error::key(checked.scope.as_str(), error))?;
        let key = RecordKey::new(checked.scope, key);
        let span = tracing::info_span!(
            "idempotent_call",
            operation = key.scope().as_str(),
            key = %key.shown(),
            attempt = tracing::field::Empty,
        );
        let deadline = context::deadline();
        let policy = Policy { lease: until(deadline, checked.policy.lease), ..checked.policy };
        Ok(Arc::new(Prepared {
            store,
            key,
            policy,
            deadline,
            fingerprint: checked.fingerprint,
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

/// A lease that does not reach beyond the deadline.
fn until(deadline: Option<Instant>, lease: Duration) -> Duration {
    let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    left.map_or(lease, |left| lease.min(left).max(SHORTEST_LEASE))
}

/// One call that can be made.
pub(crate) struct Prepared<S> {
    pub(super) store: S,
    pub(super) key: RecordKey,
    pub(super) policy: Policy,
    deadline: Option<Instant>,
    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) runtime: Handle,
    pub(super) span: Span,
    observer: Option<Arc<Observation>>,
}

impl<S: Store> Prepared<S> {
    pub(super) fn id(&self) -> CallId {
        (&self.key).into()
    }

    /// How long the lease is to be from now.
    pub(super) fn lease(&self) -> Duration {
        until(self.deadline, self.policy.lease)
    }

    /// Puts down how the call ended, for who observes it.
    pub(super) fn end(&self, ending: Ending) {
        if let Some(observer) = &self.observer {
            observer.end(ending);
        }
    }

    /// The same, for an error that is given to the caller.
    pub(super) fn refuse(&self, error: Error) -> Error {
        self.end(Ending::Refused(error.clone()));
        error
    }

    pub(super) fn observe(&self, outcome: Outcome) {
        if let Some(observer) = &self.observer {
            observer.set(outcome);
        }
    }

    /// Finishes `work` when the caller has gone away.
    pub(super) fn finish_behind(&self, work: impl Future<Output = ()> + Send + 'static) {
        let left = background::finish(&self.runtime, Box::pin(work));
        if let (Some(observer), Some(left)) = (&self.observer, left) {
            observer.left_behind(left);
        }
    }

    pub(super) fn report(&self, event: Event<'_>, attempt: u32) {
        report::event(&self.key, event, attempt);
    }
}
