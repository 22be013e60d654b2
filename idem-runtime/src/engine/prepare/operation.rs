//! An operation: what the attribute's options set, and the way to call it without the attribute.

mod rules;
mod run;

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;

use super::policy::{RetryAfter, SharedPolicy};
use crate::error::Error;
use crate::fingerprint::{FingerprintError, fingerprint};
use idem_core::protocol::{Fingerprint, OnCrash};
use idem_core::{Key, KeyBuilder, KeyError, KeyPart, RecordKey, Scope};

pub use rules::{RulesFor, WithRecover};

/// The policy of an operation, and the way to call it without the attribute.
///
/// Cheap to clone and to make; a program usually makes it where it makes the call. The setters take any
/// value; [`run`](Self::run) returns [`Error::Configuration`] if a value cannot work.
///
/// `R` is the type of its rules about results: `()` if every value is recorded and no error is recorded;
/// [`ResultRules`](crate::ResultRules) after [`terminal`](Operation::terminal),
/// [`record_if`](Operation::record_if) or [`retry_after_error`](Operation::retry_after_error); and
/// [`WithRecover`](crate::WithRecover) after [`recover`](Self::recover). Call these setters in this order.
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
    /// The scope, or why there is none.
    pub(super) scope: Result<Scope, Box<Error>>,
    pub(super) fingerprint: Option<Result<Fingerprint, FingerprintError>>,
    pub(crate) policy: SharedPolicy,
    pub(crate) rules: R,
}

impl Operation {
    /// An operation with this scope: the stable name that separates its keys from those of other operations.
    /// Operations with the same scope share keys and results.
    pub fn new(scope: impl Into<Cow<'static, str>>) -> Self {
        let scope = checked(Scope::new(scope)).map_err(Box::new);
        Self { scope, fingerprint: None, policy: SharedPolicy::without_settings(), rules: () }
    }
}

impl<R> Operation<R> {
    pub(crate) fn map_rules<Q>(self, map: impl FnOnce(R) -> Q) -> Operation<Q> {
        let Self { scope, fingerprint, policy, rules } = self;
        Operation { scope, fingerprint, policy, rules: map(rules) }
    }

    /// The settings alone, for one call.
    pub(crate) fn without_rules(&self) -> Operation {
        Operation {
            scope: self.scope.clone(),
            fingerprint: self.fingerprint,
            policy: self.policy.clone(),
            rules: (),
        }
    }

    /// The same policy under another scope.
    pub fn scope(self, scope: impl Into<Cow<'static, str>>) -> Self {
        Self { scope: checked(Scope::new(scope)).map_err(Box::new), ..self }
    }

    /// How long the result is kept, from completion; 24 hours unless set. At most 100 years.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.policy.to_mut().ttl = ttl;
        self
    }

    /// How long a claim lasts without a renewal; 30 seconds unless set. The engine renews the claim while the
    /// body runs. At least a millisecond, at most 100 years.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.policy.to_mut().lease = lease;
        self
    }

    /// Waits at most this long for the result of the call in flight, or until a failed key is due again. With
    /// zero, the default, the call is refused at once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.policy.to_mut().wait = wait;
        self
    }

    /// What happens after a body that began and did not end (its lease ran out, its caller went away, it
    /// panicked or timed out); [`OnCrash::Rerun`] unless set.
    pub fn on_crash(mut self, on_crash: OnCrash) -> Self {
        self.policy.to_mut().on_crash = on_crash;
        self
    }

    /// How many times the body may be started for one key before [`Error::Exhausted`]; no limit unless set.
    /// At least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.policy.to_mut().max_attempts = Some(attempts);
        self
    }

    /// Runs the body unprotected when the store is down, instead of refusing the call. It cannot be combined
    /// with [`OnCrash::InDoubt`].
    pub fn fail_open(mut self) -> Self {
        self.policy.to_mut().fail_open = true;
        self
    }

    /// How long one attempt may take, `recover` included; no limit unless set. More than zero, at most 100
    /// years.
    ///
    /// After that time the body is dropped, and the caller gets [`Error::TimedOut`](crate::Error::TimedOut).
    /// It is not known what the body did, so this counts as a crash: the next run is `recovered`, or the key
    /// is in doubt under [`OnCrash::InDoubt`](crate::OnCrash::InDoubt).
    ///
    /// A body can only be dropped where an await suspends it. A body that blocks its thread continues until
    /// its next such await. If it returns before that await, its result counts. The tasks that a dropped body
    /// has spawned continue.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.to_mut().timeout = Some(timeout);
        self
    }

    /// When a key whose body failed is due again; at once unless set. Before the key is due, a call gets
    /// [`Error::NotDue`](crate::Error::NotDue), or waits if the operation has a [`wait`](Self::wait).
    ///
    /// This setting applies to errors that the body returns. After a crash, a dropped caller, a panic or a
    /// timeout, the key is due at once or when the lease is over.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use std::time::Duration;
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// #[derive(Debug)]
    /// enum Failure {
    ///     GatewayDown,
    ///     Idem(Error),
    /// }
    ///
    /// impl From<Error> for Failure {
    ///     fn from(error: Error) -> Self {
    ///         Self::Idem(error)
    ///     }
    /// }
    ///
    /// let store = MemoryStore::new();
    /// let charge = Operation::new("payments.charge")
    ///     .retry_after(Duration::from_secs(1)..Duration::from_secs(300));
    /// let call = || charge.run(&store, "order-42", || async { Err::<(), _>(Failure::GatewayDown) });
    /// assert!(matches!(call().await, Err(Failure::GatewayDown)));
    /// assert!(matches!(call().await, Err(Failure::Idem(Error::NotDue { .. }))));
    /// # }
    /// ```
    pub fn retry_after(mut self, retry_after: impl Into<RetryAfter>) -> Self {
        self.policy.to_mut().retry_after = Some(retry_after.into());
        self
    }

    /// How long one operation of the store may take, retries included; 10 seconds unless set.
    pub fn store_timeout(mut self, timeout: Duration) -> Self {
        self.policy.to_mut().store_timeout = timeout;
        self
    }

    /// Sets the value that must not change under one key. The SHA-256 of its canonical JSON (RFC 8785) is
    /// recorded, and a call with another value gets [`Error::Mismatch`].
    pub fn fingerprint<T: Serialize + ?Sized>(self, value: &T) -> Self {
        self.with_fingerprint(fingerprint(value))
    }

    /// As [`fingerprint`](Self::fingerprint), for a fingerprint that the caller computed, for example from
    /// the bytes of a request.
    pub fn computed_fingerprint(self, fingerprint: Fingerprint) -> Self {
        self.with_fingerprint(Ok(fingerprint))
    }

    /// As [`fingerprint`](Self::fingerprint), for a fingerprint whose computation may have failed.
    #[doc(hidden)]
    pub fn with_fingerprint(mut self, fingerprint: Result<Fingerprint, FingerprintError>) -> Self {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// The name of the record that a call with this key would have; the call is not made. Use it in tests,
    /// for `forget`, and in support tools. It does the same as `key_fn` in the attribute.
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
        self.record_of(rendered(&key)).map(|(key, _)| key)
    }

    /// Calls `recover` before the body if the previous run began and did not end (its worker died, its caller
    /// went away, its body panicked or timed out), or if the key is in doubt. `recover` is also called if no
    /// attempts are left; then no body runs.
    ///
    /// | `recover` returns | then |
    /// |---|---|
    /// | `Some(value)` | that is the result; the body does not run |
    /// | `None` | nothing happened that counts; the body runs |
    /// | an error | the key is in doubt, and the caller gets the error |
    ///
    /// `recover` runs under the claim of the new attempt, and the engine renews its lease. `recover` may read
    /// the recorded steps but not make new ones. It is not called after an operator's release. After an error
    /// that the body returned, it is called only if a step of that run could not be recorded. If `recover`
    /// panics or is dropped, the next call runs it again, or the key is in doubt under [`OnCrash::InDoubt`].
    /// An error of `recover` is not recorded.
    ///
    /// With [`OnCrash::InDoubt`], a call of an operation with `recover` gets a key in doubt and settles the
    /// doubt: `None` means that the body may run. Without [`OnCrash::InDoubt`], a key that `recover` left in
    /// doubt waits for an operator.
    ///
    /// [`OnCrash::InDoubt`]: crate::OnCrash::InDoubt
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use idem::{Error, MemoryStore, Operation, Recovery};
    ///
    /// /// Whether the gateway knows a payment.
    /// async fn find(_gateway_key: &str) -> Result<Option<u64>, Error> {
    ///     Ok(None)
    /// }
    ///
    /// let charge = Operation::new("payments.charge")
    ///     .recover(|recovery: Recovery| async move { find(&recovery.downstream_key("gateway")).await });
    /// let receipt = charge.run(&MemoryStore::new(), "order-42", || async { Ok::<_, Error>(7) }).await?;
    /// assert_eq!(receipt, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn recover<G>(self, recover: G) -> Operation<WithRecover<R, G>> {
        self.recovering().map_rules(|rules| WithRecover { rules, recover })
    }

    /// Marks an operation whose body calls `recover` first.
    #[doc(hidden)]
    pub fn recovering(mut self) -> Self {
        self.policy.to_mut().recovers = true;
        self
    }

    /// Checks the scope and the settings without a call, for example when the program starts.
    ///
    /// # Errors
    ///
    /// The [`Error::Configuration`] or [`Error::InvalidKey`] that each call would get.
    pub fn validate(&self) -> Result<(), Error> {
        self.record_key("of any call").map(drop)
    }
}

/// The scope, if it is valid and not a reserved one.
pub(super) fn checked(scope: Result<Scope, KeyError>) -> Result<Scope, Error> {
    let scope = scope.map_err(|error| Error::key("(no scope)", error))?;
    if scope.is_reserved() { Err(Error::key(scope.as_str(), KeyError::ReservedScope)) } else { Ok(scope) }
}

/// The key of a call. A finished [`Key`] is used as it is; any other value becomes the only part of a key.
pub(crate) fn rendered(key: &impl KeyPart) -> RenderedKey {
    KeyBuilder::new().part(key).finish()
}

/// A rendered key, or why there is none.
pub(crate) type RenderedKey = Result<Key, KeyError>;
