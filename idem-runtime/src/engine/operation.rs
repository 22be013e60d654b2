//! The policy of an operation: what the attribute's options set, and what is checked of it.

mod pace;

use std::any::{type_name, type_name_of_val};
use std::borrow::Cow;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::retry_after::RetryAfter;
use super::site::{DefaultScope, Site};
use super::{Call, Values};
use crate::error::Error;
use crate::fingerprint::{FingerprintError, fingerprint};
use idem_core::Store;
use idem_core::defaults::{self, LONGEST, SHORTEST_LEASE};
use idem_core::protocol::{Fingerprint, OnCrash};
use idem_core::{Key, KeyBuilder, KeyError, KeyPart, RecordKey, Scope};

/// The policy of an operation, and the way to call it without the attribute.
///
/// Cheap to clone and to make; a program usually makes it where it makes the call. The setters take
/// any value, and [`run`](Self::run) answers [`Error::Configuration`] where one cannot work.
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
pub struct Operation {
    scope: ScopeSource,
    fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    max_attempts: Option<u32>,
    pub(super) policy: Policy,
}

#[derive(Clone, Debug)]
enum ScopeSource {
    Named(Cow<'static, str>),
    Default(DefaultScope),
}

/// What the engine goes by, once it was checked.
#[derive(Clone, Debug)]
pub(super) struct Policy {
    pub(super) ttl: Duration,
    pub(super) lease: Duration,
    pub(super) wait: Duration,
    pub(super) on_crash: OnCrash,
    pub(super) max_attempts: Option<NonZeroU32>,
    pub(super) fail_open: bool,
    pub(super) max_result_bytes: usize,
    pub(super) store_timeout: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) retry_after: Option<RetryAfter>,
    /// Whether an earlier run that ended without saying what happened is asked about first.
    pub(super) recovers: bool,
    pub(super) strict_steps: bool,
}

impl Policy {
    /// Whether a key in doubt is this operation's to settle.
    pub(super) fn settles_doubt(&self) -> bool {
        self.recovers && self.on_crash == OnCrash::InDoubt
    }
}

impl Operation {
    /// An operation with this scope: the stable name that keeps its keys apart from other
    /// operations'. Operations with the same scope share keys and results.
    pub fn new(scope: impl Into<Cow<'static, str>>) -> Self {
        Self::from_scope(ScopeSource::Named(scope.into()))
    }

    /// An annotated function without `self`, under its default scope. `inside` is something in the function.
    #[doc(hidden)]
    pub fn at<T>(site: &'static Site, inside: &T) -> Self {
        Self::from_scope(ScopeSource::Default(site.scope(None, type_name_of_val(inside))))
    }

    /// An annotated method of `R`, under its default scope. `inside` is something in the method.
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
            max_result_bytes: defaults::MAX_RESULT_BYTES,
            store_timeout: defaults::STORE_TIMEOUT,
            timeout: None,
            retry_after: None,
            recovers: false,
            strict_steps: false,
        };
        Self { scope, fingerprint: None, max_attempts: None, policy }
    }

    /// How long the result is kept, from completion; 24 hours unless set. At most 100 years.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.policy.ttl = ttl;
        self
    }

    /// How long a silent owner keeps its claim; 30 seconds unless set. It is renewed while the body
    /// lives. At least a millisecond, at most 100 years.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.policy.lease = lease;
        self
    }

    /// Waits at most this long for the result of the call in flight. Zero, as if it is not set,
    /// refuses at once.
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

    /// How often the body may be started for one key before [`Error::Exhausted`]; no limit unless
    /// set. At least 1.
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Runs the body unprotected when the store is down, instead of refusing the call. It cannot go
    /// with [`OnCrash::InDoubt`].
    pub const fn fail_open(mut self) -> Self {
        self.policy.fail_open = true;
        self
    }

    /// A [`step`](crate::step) that nothing records is an error and does not run, instead of a warning: in a call that
    /// runs unprotected, and in one with a transaction. As the attribute's `steps = "strict"`.
    ///
    /// A task that the body spawns is outside the call unless [`Context::scope`](crate::Context::scope) carries the
    /// call into it, and steps there know of no operation: make those [`Step::strict`](crate::Step::strict).
    pub const fn strict_steps(mut self) -> Self {
        self.policy.strict_steps = true;
        self
    }

    /// The largest encoded result that is recorded, in bytes; 1 MiB unless set. Beyond it the key is
    /// completed without a result: the first caller gets its value, later ones
    /// [`Error::ResultNotStored`].
    pub const fn max_result_bytes(mut self, bytes: usize) -> Self {
        self.policy.max_result_bytes = bytes;
        self
    }

    /// How long one operation of the store may take, retries included; 10 seconds unless set.
    pub const fn store_timeout(mut self, timeout: Duration) -> Self {
        self.policy.store_timeout = timeout;
        self
    }

    /// What must not change under one key: the SHA-256 of its canonical JSON (RFC 8785) is
    /// recorded, and a call with another one is [`Error::Mismatch`].
    pub fn fingerprint<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.with_fingerprint(Some(fingerprint(value)))
    }

    pub(crate) fn with_fingerprint(
        mut self,
        fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    ) -> Self {
        self.fingerprint = fingerprint;
        self
    }

    /// Calls the operation: runs `body` if this call gets the key, otherwise returns the recorded result.
    ///
    /// `key` is any [`KeyPart`], encoded as the only part of the key. A finished [`Key`], such as one of
    /// [`KeyBuilder`] or of [`Context::key`](crate::Context::key), is used as it is.
    ///
    /// It needs a tokio runtime with time enabled.
    ///
    /// # Errors
    ///
    /// The body's own, and every [`Error`] turned into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` does; the key is released first.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the body and releases the key in the background (under
    /// [`OnCrash::InDoubt`] it is then in doubt). If the body has succeeded by then, its result is recorded in the
    /// background.
    pub fn run<S, K, F, B, T, E>(
        &self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<S, K, F, B, T, E>
    where
        S: Store,
        K: KeyPart,
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        call(self.clone(), store.clone(), rendered(&key), body)
    }

    /// The name of the record of a call with this key, which is not made: for tests, `forget` and support tools. As the
    /// attribute's `key_fn`.
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
        self.clone().record_of(rendered(&key))
    }

    /// Asks about an earlier run first, where the body sees to it.
    #[doc(hidden)]
    pub const fn recovering(mut self) -> Self {
        self.policy.recovers = true;
        self
    }

    #[cfg(feature = "http")]
    pub(crate) fn scoped(self, scope: Cow<'static, str>) -> Self {
        Self { scope: ScopeSource::Named(scope), ..self }
    }

    /// What [`run`](Self::run) would refuse, said earlier.
    #[cfg(feature = "http")]
    pub(crate) fn validate(&self) -> Result<(), Error> {
        self.clone().check().map(drop)
    }

    /// Whether the body may run again where it ended without a result.
    #[cfg(feature = "http")]
    pub(crate) fn reruns(&self) -> bool {
        self.policy.on_crash == OnCrash::Rerun
    }

    /// The name of the record with this key.
    pub(crate) fn record_of(self, key: RenderedKey) -> Result<RecordKey, Error> {
        let scope = self.check()?.scope;
        let key = key.map_err(|error| Error::key(scope.as_str(), error))?;
        Ok(RecordKey::new(scope, key))
    }

    /// Its name, where its steps are strict.
    pub(crate) fn strict_name(&self) -> Option<Arc<str>> {
        self.policy.strict_steps.then(|| Arc::from(self.name()))
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

/// The key is rendered by now, so the future holds neither it nor the operation.
async fn call<S, F, B, T, E>(operation: Operation, store: S, key: RenderedKey, body: F) -> Result<T, E>
where
    S: Store,
    F: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: From<Error>,
{
    let call = Call::new(operation, store, key);
    let body = pin!(Some(async { body().await }));
    super::run(call.prepare(), &mut Values, body).await
}

/// What [`Operation::check`] gives.
pub(super) struct Checked {
    pub(super) scope: Scope,
    pub(super) policy: Policy,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// The key that a call is made under: a finished one as it is, anything else as the only part of one.
pub(super) fn rendered(key: &impl KeyPart) -> RenderedKey {
    key.whole_key().map_or_else(|| KeyBuilder::new().part(key).finish(), |whole| Ok(whole.clone()))
}

/// A key as it was rendered, or why there is none.
pub(super) type RenderedKey = Result<Key, KeyError>;
