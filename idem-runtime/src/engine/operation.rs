//! The policy of an operation: the values that the attribute's options set, and their checks.

mod pace;
mod recover;
mod run;

use std::any::{type_name, type_name_of_val};
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::Serialize;

use super::retry_after::RetryAfter;
use super::site::{DefaultScope, Site};
use crate::error::Error;
use crate::fingerprint::{FingerprintError, fingerprint};
use idem_core::defaults::{self, LONGEST, SHORTEST_LEASE};
use idem_core::protocol::{Fingerprint, OnCrash};
use idem_core::{Key, KeyBuilder, KeyError, KeyPart, RecordKey, Scope};

/// The policy of an operation, and the way to call it without the attribute.
///
/// Cheap to clone and to make; a program usually makes it where it makes the call. The setters take any value;
/// [`run`](Self::run) returns [`Error::Configuration`] if a value cannot work.
///
/// `R` is its rules about results: `()` for results of any type that serializes, which are all kept;
/// [`ResultRules`](crate::ResultRules) with [`terminal`](Operation::terminal), [`record_if`](Operation::record_if) or
/// [`retry_after_error`](Operation::retry_after_error); and [`WithRecover`](crate::WithRecover) with
/// [`recover`](Self::recover). Set those in this order.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use std::time::Duration;
/// use idem::{MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let receipt = Operation::new("payments.charge")
///     .ttl(Duration::from_secs(24 * 60 * 60))
///     .lease(Duration::from_secs(30))
///     .fingerprint(&(1999, "EUR"))
///     .run(&store, "order-42", || async { Ok::<_, idem::Error>("receipt".to_owned()) })
///     .await?;
/// assert_eq!(receipt, "receipt");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an operation does nothing until it is `run`"]
pub struct Operation<R = ()> {
    scope: ScopeSource,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    max_attempts: Option<u32>,
    pub(super) policy: Policy,
    pub(super) rules: R,
}

#[derive(Clone, Debug)]
enum ScopeSource {
    Named(Cow<'static, str>),
    Default(DefaultScope),
}

/// The checked settings that the engine uses.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) ttl: Duration,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) on_crash: OnCrash,
    pub(super) max_attempts: Option<NonZeroU32>,
    pub(super) fail_open: bool,
    pub(super) store_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) retry_after: Option<RetryAfter>,
    /// Whether `recover` runs first if an earlier run began and did not end.
    pub(super) recovers: bool,
}

impl Policy {
    /// Whether calls of this operation settle a key in doubt.
    pub(super) fn settles_doubt(&self) -> bool {
        self.recovers && self.on_crash == OnCrash::InDoubt
    }
}

impl Operation {
    /// An operation with this scope: the stable name that separates its keys from those of other operations. Operations
    /// with the same scope share keys and results.
    pub fn new(scope: impl Into<Cow<'static, str>>) -> Self {
        Self::from_scope(ScopeSource::Named(scope.into()))
    }

    /// The operation of an annotated function without `self`, under its default scope. `inside` is a value whose type
    /// is defined in the function.
    #[doc(hidden)]
    pub fn at<T>(site: &'static Site, inside: &T) -> Self {
        Self::from_scope(ScopeSource::Default(site.scope(None, type_name_of_val(inside))))
    }

    /// The operation of an annotated method of `R`, under its default scope. `inside` is a value whose type is defined
    /// in the method.
    #[doc(hidden)]
    pub fn at_method<R: ?Sized, T>(site: &'static Site, inside: &T) -> Self {
        Self::from_scope(ScopeSource::Default(site.scope(Some(type_name::<R>()), type_name_of_val(inside))))
    }

    fn from_scope(scope: ScopeSource) -> Self {
        let policy = Policy {
            ttl: defaults::TTL,
            lease: defaults::LEASE,
            wait: Duration::ZERO,
            on_crash: OnCrash::Rerun,
            max_attempts: None,
            fail_open: false,
            store_timeout: defaults::STORE_TIMEOUT,
            timeout: None,
            retry_after: None,
            recovers: false,
        };
        Self { scope, fingerprint: None, max_attempts: None, policy, rules: () }
    }
}

impl<R> Operation<R> {
    /// The same operation with other rules.
    pub(super) fn map_rules<Q>(self, map: impl FnOnce(R) -> Q) -> Operation<Q> {
        let Self { scope, fingerprint, max_attempts, policy, rules } = self;
        Operation { scope, fingerprint, max_attempts, policy, rules: map(rules) }
    }

    /// The settings alone, for one call.
    pub(super) fn without_rules(&self) -> Operation {
        Operation {
            scope: self.scope.clone(),
            fingerprint: self.fingerprint,
            max_attempts: self.max_attempts,
            policy: self.policy.clone(),
            rules: (),
        }
    }

    /// The same policy under another scope.
    pub fn scope(self, scope: impl Into<Cow<'static, str>>) -> Self {
        Self { scope: ScopeSource::Named(scope.into()), ..self }
    }

    /// How long the result is kept, from completion; 24 hours unless set. At most 100 years.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.policy.ttl = ttl;
        self
    }

    /// How long a silent owner keeps its claim; 30 seconds unless set. The engine renews the lease while the body runs.
    /// At least a millisecond, at most 100 years.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.policy.lease = lease;
        self
    }

    /// Waits at most this long for the result of the call in flight. With zero, the default, the call is refused at
    /// once.
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.policy.wait = wait;
        self
    }

    /// What happens after a body that began and did not end (its lease ran out, its caller went away, it panicked or
    /// timed out); [`OnCrash::Rerun`] unless set.
    pub const fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.policy.on_crash = on_crash;
        self
    }

    /// How many times the body may be started for one key before [`Error::Exhausted`]; no limit unless set. At least 1.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Runs the body unprotected when the store is down, instead of refusing the call. It cannot be combined with
    /// [`OnCrash::InDoubt`].
    pub const fn fail_open(mut self) -> Self {
        self.policy.fail_open = true;
        self
    }

    /// How long one operation of the store may take, retries included; 10 seconds unless set.
    pub const fn store_timeout(mut self, timeout: Duration) -> Self {
        self.policy.store_timeout = timeout;
        self
    }

    /// Sets the value that must not change under one key. The SHA-256 of its canonical JSON (RFC 8785) is recorded, and
    /// a call with another one gets [`Error::Mismatch`].
    pub fn fingerprint<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.with_fingerprint(Some(fingerprint(value)))
    }

    /// As [`fingerprint`](Self::fingerprint), for a fingerprint that the caller made: of bytes, such as those of a request.
    pub fn computed_fingerprint(self, fingerprint: Fingerprint) -> Self {
        self.with_fingerprint(Some(Ok(fingerprint)))
    }

    pub(crate) fn with_fingerprint(
        mut self,
        fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    ) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// The name of the record that a call with this key would have; the call is not made. For tests, `forget` and
    /// support tools. The same as `key_fn` in the attribute.
    ///
    /// # Errors
    ///
    /// Why the call would have no record.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use idem::{MemoryStore, Operation, Store};
    ///
    /// let (store, charge) = (MemoryStore::new(), Operation::new("payments.charge"));
    /// charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(7) }).await?;
    /// assert!(store.forget(&charge.record_key("order-42")?).await?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn record_key(&self, key: impl KeyPart) -> Result<RecordKey, Error> {
        self.without_rules().record_of(rendered(&key))
    }

    /// Marks an operation whose body calls `recover` first.
    #[doc(hidden)]
    pub const fn recovering(mut self) -> Self {
        self.policy.recovers = true;
        self
    }

    /// Checks the scope and the settings without a call, for a program that wants to know at its start.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] or [`Error::InvalidKey`], as each call would get.
    pub fn validate(&self) -> Result<(), Error> {
        self.without_rules().check().map(drop)
    }

    /// The name of the record with this key.
    pub(crate) fn record_of(self, key: RenderedKey) -> Result<RecordKey, Error> {
        let scope = self.check()?.scope;
        let key = key.map_err(|error| Error::key(scope.as_str(), error))?;
        Ok(RecordKey::new(scope, key))
    }

    pub(super) const fn body_timeout(&self) -> Option<Duration> {
        self.policy.timeout
    }

    pub(super) fn name(&self) -> &str {
        match &self.scope {
            ScopeSource::Named(name) => name,
            ScopeSource::Default(default) => &default.name,
        }
    }

    /// The checked policy, scope and fingerprint.
    pub(super) fn check(self) -> Result<Checked, Error> {
        let scope = match self.scope {
            ScopeSource::Named(name) => Scope::new(name).map_err(|error| Error::key("(no scope)", error))?,
            ScopeSource::Default(DefaultScope { name, refused: Some(why), .. }) => {
                return Err(Error::configuration(&name, why));
            }
            ScopeSource::Default(DefaultScope { name, .. }) => {
                Scope::shared(name.clone()).map_err(|error| Error::key(&name, error))?
            }
        };
        if scope.is_reserved() {
            return Err(Error::key(scope.as_str(), KeyError::ReservedScope));
        }
        let refuse = |detail: &str| Err(Error::configuration(scope.as_str(), detail));
        let mut policy = self.policy;
        if policy.ttl.is_zero() || policy.ttl > LONGEST {
            return refuse("the ttl must be more than zero and at most 100 years");
        }
        if policy.lease < SHORTEST_LEASE || policy.lease > LONGEST {
            return refuse("the lease must be at least 1 ms and at most 100 years");
        }
        if policy.wait > LONGEST {
            return refuse("the wait must be at most 100 years");
        }
        if policy.store_timeout.is_zero() || policy.store_timeout > LONGEST {
            return refuse("the store timeout must be more than zero and at most 100 years");
        }
        if let Some(fault) = policy.pace_fault() {
            return refuse(fault);
        }
        if policy.fail_open && policy.on_crash == OnCrash::InDoubt {
            return refuse(
                "`fail_open` cannot go with `on_crash = \"in_doubt\"`: one runs the body without a claim, \
                 the other promises that it never starts twice",
            );
        }
        if let Some(attempts) = self.max_attempts {
            policy.max_attempts = NonZeroU32::new(attempts);
            if policy.max_attempts.is_none() {
                return refuse("`max_attempts` must be at least 1");
            }
        }
        let fingerprint = match self.fingerprint.transpose() {
            Ok(fingerprint) => fingerprint,
            Err(error) => return refuse(&error.to_string()),
        };
        Ok(Checked { scope, policy, fingerprint })
    }
}

/// The return value of [`Operation::check`].
pub(super) struct Checked {
    pub(super) scope: Scope,
    pub(super) policy: Policy,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// The key of a call: a finished [`Key`] as it is, any other value as the only part of a key.
pub(super) fn rendered(key: &impl KeyPart) -> RenderedKey {
    key.whole_key().map_or_else(|| KeyBuilder::new().part(key).finish(), |whole| Ok(whole.clone()))
}

/// A rendered key, or why there is none.
pub(super) type RenderedKey = Result<Key, KeyError>;
