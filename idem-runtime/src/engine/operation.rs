//! The policy of an operation: what the attribute's options set, and what is checked of it.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Call, Codec, Site, Terminal, Values};
use crate::error::Error;
use crate::fingerprint::{FingerprintError, fingerprint};
use crate::key::{Key, KeyBuilder, KeyError, KeyPart, Scope};
use crate::protocol::{Fingerprint, OnCrash};
use crate::store::Store;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The longest time any option takes: 100 years.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60 + 25 * 24 * 60 * 60);

/// The shortest lease: below it, upkeep would be all a process does.
pub(super) const SHORTEST_LEASE: Duration = Duration::from_millis(1);

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
    Default(Arc<str>, &'static Site),
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
    /// Whether an earlier run that ended without saying what happened is asked about first.
    pub(super) recovers: bool,
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

    /// An annotated free function, under its default scope.
    #[doc(hidden)]
    pub fn at(site: &'static Site) -> Self {
        Self::from_scope(ScopeSource::Default(site.scope(), site))
    }

    /// An annotated method or generic function, under its default scope.
    #[doc(hidden)]
    pub fn at_types(
        site: &'static Site,
        receiver: Option<&'static str>,
        parameters: &[&'static str],
    ) -> Self {
        Self::from_scope(ScopeSource::Default(site.typed_scope(receiver, parameters), site))
    }

    fn from_scope(scope: ScopeSource) -> Self {
        let policy = Policy {
            ttl: DAY,
            lease: Duration::from_secs(30),
            wait: Duration::ZERO,
            on_crash: OnCrash::Rerun,
            max_attempts: None,
            fail_open: false,
            max_result_bytes: 1024 * 1024,
            store_timeout: Duration::from_secs(10),
            recovers: false,
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

    /// What a lease that ran out without a result means; [`OnCrash::Rerun`] unless set.
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

    /// Keeps and replays errors for which `is_terminal` holds; without it every error releases the
    /// key.
    pub const fn terminal<F>(self, is_terminal: F) -> TerminalOperation<F> {
        TerminalOperation { operation: self, is_terminal }
    }

    /// Calls the operation: runs `body` if this call gets the key, else gives the recorded result.
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
    /// [`OnCrash::InDoubt`] it is then in doubt). Once the body has succeeded, dropping it records
    /// the result in the background.
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
        call(self.clone(), store.clone(), KeyBuilder::new().part(&key).finish(), Values, body)
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

    pub(super) fn name(&self) -> &str {
        match &self.scope {
            ScopeSource::Named(name) => name,
            ScopeSource::Default(name, _) => name,
        }
    }

    /// The checked policy, scope and fingerprint.
    pub(super) fn check(self) -> Result<Checked, Error> {
        let scope = match self.scope {
            ScopeSource::Named(name) => Scope::new(name).map_err(|error| Error::key("(no scope)", error))?,
            ScopeSource::Default(scope, site) => {
                site.register(&scope)?;
                Scope::shared(scope.clone()).map_err(|error| Error::key(&scope, error))?
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

/// An [`Operation`] that also keeps terminal errors; made by [`Operation::terminal`].
#[derive(Clone, Debug)]
#[must_use = "an operation does nothing until it is `run`"]
pub struct TerminalOperation<F> {
    pub(super) operation: Operation,
    pub(super) is_terminal: F,
}

impl<F> TerminalOperation<F> {
    /// As [`Operation::run`], with terminal errors recorded and replayed.
    ///
    /// # Errors
    ///
    /// The body's own, and every [`Error`] turned into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or the terminal function does.
    pub fn run<'a, S, K, G, B, T, E>(
        &'a self,
        store: &S,
        key: K,
        body: G,
    ) -> impl Future<Output = Result<T, E>> + use<'a, F, S, K, G, B, T, E>
    where
        S: Store,
        K: KeyPart,
        F: Fn(&E) -> bool,
        G: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error> + Serialize + DeserializeOwned,
    {
        let codec = Terminal(&self.is_terminal);
        call(self.operation.clone(), store.clone(), KeyBuilder::new().part(&key).finish(), codec, body)
    }
}

/// The key is rendered by now, so the future holds neither it nor the operation.
async fn call<S, C, F, B, T, E>(
    operation: Operation,
    store: S,
    key: RenderedKey,
    mut codec: C,
    body: F,
) -> Result<T, E>
where
    S: Store,
    C: Codec<T, E>,
    F: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
    T: Serialize + DeserializeOwned,
    E: From<Error>,
{
    let call = Call::new(operation, store, key);
    let body = pin!(Some(async { body().await }));
    super::run(call.prepare(), &mut codec, body).await
}

/// What [`Operation::check`] gives.
pub(super) struct Checked {
    pub(super) scope: Scope,
    pub(super) policy: Policy,
    pub(super) fingerprint: Option<Fingerprint>,
}

/// A key as it was rendered, or why there is none.
pub(super) type RenderedKey = Result<Key, KeyError>;
