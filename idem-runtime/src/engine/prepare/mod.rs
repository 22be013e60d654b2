//! The first phase: everything before the first request to the store.
//!
//! Owns the [`Site`] of an annotated function, and one [`Call`]: all that is known about the call before the
//! first request, such as its key, policy, runtime and observer. This phase sends no request to a store.
//! [`operation`] and [`policy`] are the settings of an operation and their checks, and [`scope`] makes the
//! scope of a function whose attribute sets no scope.

pub(super) mod operation;
pub(super) mod policy;
pub(super) mod scope;

use std::any::type_name_of_val;
use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::panic::{Location, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tracing::Span;

use self::operation::{Operation, RenderedKey, checked};
use self::policy::{Policy, SharedPolicy};
use crate::engine::Process;
use crate::engine::body::context::{Context, Surroundings, surroundings};
use crate::engine::claim::waiters::StoreIdentity;
use crate::engine::lease::Sent;
use crate::engine::record::background::{self, Work};
use crate::engine::report::{BackgroundWork, CallEnd, CallEvent, Observation, Shown};
use crate::error::{CallId, Error};
use idem_core::defaults::SHORTEST_LEASE;
use idem_core::protocol::{Claim, Fingerprint, Owner};
use idem_core::{RecordKey, Scope, Store};

/// An annotated function.
pub struct Site {
    /// The scope that its attribute sets.
    scope: Option<&'static str>,
    module: &'static str,
    function: &'static str,
    location: &'static Location<'static>,
    /// Whether calls run under the scope; `false` for code that only names the records of a function.
    runs: bool,
    policy: Policy,
    fault: Option<&'static str>,
    /// The receiver type of the first call, as the compiler names it (empty without a receiver), and the
    /// function's scope for that type. Usually all calls have this receiver type. A method of a trait may
    /// have other receiver types; each call with one of them makes its scope again.
    first: OnceLock<(&'static str, ScopeOfSite)>,
}

/// The scope of a function for a type, or why there is none.
type ScopeOfSite = Result<Scope, Box<Error>>;

impl Site {
    /// A function. `scope` is what its attribute sets; `runs` is `false` for code that only names the records
    /// of the function.
    #[must_use]
    #[track_caller]
    pub const fn new(
        scope: Option<&'static str>,
        module: &'static str,
        function: &'static str,
        runs: bool,
        policy: Policy,
    ) -> Self {
        let (location, fault) = (Location::caller(), policy.fault());
        Self { scope, module, function, location, runs, policy, fault, first: OnceLock::new() }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.location, f)
    }
}

impl Operation {
    /// The operation of an annotated function. `receiver` is the compiler's name of the type of its `self`,
    /// and `inside` is a value whose type is defined in the function.
    #[doc(hidden)]
    pub fn at<T>(site: &'static Site, receiver: Option<&'static str>, inside: &T) -> Self {
        let name = receiver.unwrap_or_default();
        let find = || match site.scope {
            Some(name) => checked(Scope::new(name)).map_err(Box::new),
            None => site.default_scope(receiver, type_name_of_val(inside)).map_err(Box::new),
        };
        let (first, scope) = site.first.get_or_init(|| (name, find()));
        // Compares the addresses first. They are usually equal, but the compiler may keep two copies of a
        // type's name.
        let is_first = std::ptr::eq(*first, name) || *first == name || site.scope.is_some();
        let scope = if is_first { scope.clone() } else { find() };
        let policy = SharedPolicy { site: &site.policy, fault: site.fault, own: None };
        Self { scope, fingerprint: None, policy, rules: () }
    }
}

/// One call that has passed all checks.
pub(crate) struct Call<S> {
    pub(crate) store: S,
    details: Details,
}

/// The part of a call that does not depend on the type of its store.
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
    pub(crate) observer: Option<Arc<Observation>>,
}

impl<S> Deref for Call<S> {
    type Target = Details;

    fn deref(&self) -> &Details {
        &self.details
    }
}

/// The runtime in which a call of this operation is made. It must have timers.
pub(crate) fn runtime(operation: &str) -> Result<Handle, Error> {
    thread_local! {
        /// The last runtime in which this thread found timers.
        static TIMED: Cell<Option<Id>> = const { Cell::new(None) };
    }
    let refuse = |detail: &str| Error::configuration(operation, detail);
    let runtime = Handle::try_current().map_err(|_| {
        refuse("the call runs outside a tokio runtime; make it in a runtime that has time enabled")
    })?;
    let id = Some(runtime.id());
    if TIMED.try_with(Cell::get).ok().flatten() != id {
        // Tokio reports a runtime without timers only by a panic.
        if catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_err() {
            return Err(refuse(
                "this tokio runtime has no timers; build it with `enable_time` or `enable_all`",
            ));
        }
        let _ = TIMED.try_with(|timed| timed.set(id));
    }
    Ok(runtime)
}

impl<R> Operation<R> {
    pub(crate) fn name(&self) -> &str {
        match self.scope.as_ref().map_err(|error| &**error) {
            Ok(scope) => scope.as_str(),
            Err(Error::Configuration { operation, .. } | Error::InvalidKey { operation, .. }) => operation,
            Err(_) => "(no scope)",
        }
    }

    /// The name of the record with this key, and the fingerprint. An error if the scope, the key, the
    /// fingerprint or the policy cannot be used.
    pub(crate) fn record_of(&self, key: RenderedKey) -> Result<(RecordKey, Option<Fingerprint>), Error> {
        let scope = self.scope.as_ref().map_err(|error| (**error).clone())?;
        let refuse = |detail: &str| Error::configuration(scope.as_str(), detail);
        // The policy of a site was checked when it was compiled.
        if let Some(fault) = self.policy.own.as_deref().map_or(self.policy.fault, Policy::fault) {
            return Err(refuse(fault));
        }
        let fingerprint = self.fingerprint.transpose().map_err(|fault| refuse(&fault.to_string()))?;
        let key = key.map_err(|error| Error::key(scope.as_str(), error))?;
        Ok((RecordKey::new(scope.clone(), key), fingerprint))
    }
}

impl<S: Store> Call<S> {
    /// Makes all checks that come before the first request to the store. This runs in the caller's task, even
    /// for a detached body.
    pub(crate) fn new(operation: Operation, store: S, key: RenderedKey) -> Result<Arc<Self>, Box<Error>> {
        let Surroundings { call: enclosing, deadline, observer, process } = surroundings();
        let refuse = |error: Error| {
            if let Some(observer) = &observer {
                observer.report(&CallEvent::Ended(&CallEnd::Refused(error.clone())));
            }
            Box::new(error)
        };
        let runtime = runtime(operation.name()).map_err(refuse)?;
        let (key, fingerprint) = operation.record_of(key).map_err(refuse)?;
        let policy = operation.policy;
        if let Some(observer) = &observer {
            observer.report(&CallEvent::Started { key: &key, ttl: policy.ttl });
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(refuse(Error::NoTimeLeft { call: (&key).into() }));
        }
        let span = tracing::info_span!(
            "idempotent_call",
            idem.operation = key.scope().as_str(),
            idem.key.digest = %Shown(&key),
            idem.attempt = tracing::field::Empty,
            idem.outcome = tracing::field::Empty,
        );
        let mut details = Details {
            lease: policy.lease,
            key,
            policy,
            deadline,
            enclosing,
            fingerprint,
            max_result_bytes: store.max_result_bytes().unwrap_or(usize::MAX),
            process,
            runtime,
            span,
            observer,
        };
        details.lease = details.lease_from_now();
        Ok(Arc::new(Self { store, details }))
    }

    /// Whether this call is made in a body that holds the same key. Such a call would wait for itself.
    pub(crate) fn is_reentrant(&self) -> bool {
        let enclosing = self.enclosing.as_ref().zip(StoreIdentity::of(&self.store));
        enclosing.is_some_and(|(call, store)| call.holds(&self.key, store))
    }
}

impl Details {
    pub(crate) fn id(&self) -> CallId {
        (&self.key).into()
    }

    /// The length of a lease that starts now. Near the deadline, the lease is shorter, so that it ends there.
    /// It is never shorter than `SHORTEST_LEASE`.
    pub(crate) fn lease_from_now(&self) -> Duration {
        let Some(deadline) = self.deadline else { return self.lease };
        let remaining = deadline.saturating_duration_since(Instant::now());
        self.lease.min(remaining).max(SHORTEST_LEASE)
    }

    /// The time of a request that is sent now, and the lease that the request asks for.
    pub(crate) fn send_time(&self) -> Sent {
        Sent { runtime: Instant::now(), machine: (self.process.clock)(), lease: self.lease_from_now() }
    }

    /// The request that claims the key for this owner.
    pub(crate) fn claim(&self, owner: Owner, lease: Duration) -> Claim {
        let policy = &self.policy;
        Claim::new(owner, lease, policy.ttl)
            .with_fingerprint(self.fingerprint)
            .with_on_crash(policy.on_crash)
            .with_max_attempts(policy.max_attempts.and_then(NonZeroU32::new))
            .with_recovers(policy.recovers)
    }

    /// Polls `future` in the span of the call, because a wrapper of the store may use the current span.
    /// Borrows the span, because a clone would make the future of every call larger.
    pub(crate) async fn in_span<F: Future>(&self, mut future: Pin<&mut F>) -> F::Output {
        poll_fn(|cx| self.span.in_scope(|| future.as_mut().poll(cx))).await
    }

    /// Finishes `work` in the background.
    pub(crate) fn finish_behind(&self, kind: Work, work: impl Future<Output = ()> + Send + 'static) {
        let unfinished = background::finish(&self.process, &self.runtime, kind, work);
        if let (Some(observer), Some(unfinished)) = (&self.observer, unfinished) {
            observer.report(&CallEvent::Background(BackgroundWork::of(unfinished)));
        }
    }
}
