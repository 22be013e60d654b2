//! Operations with rules that depend on the types of their results.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Call;
use super::operation::{Operation, RenderedKey, rendered};
use super::returns::{Failure, Unbound};
use super::rules::Rules;
use crate::error::Error;
use idem_core::{KeyPart, Store};

/// An [`Operation`] with rules about its results: made by [`Operation::terminal`], [`Operation::record_if`]
/// and [`Operation::retry_after_error`].
///
/// `T` is the value of its body, `E` its error, and `F` the function of [`terminal`](Self::terminal), `()` without one.
/// Set all other settings on the `Operation` first.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use std::time::Duration;
/// use idem::{Error, MemoryStore, Operation};
///
/// let charge = Operation::new("payments.charge")
///     .timeout(Duration::from_secs(120))
/// // This caller gets "pending", and the next one runs the body again.
///     .record_if(|state: &String| state != "pending")
///     .retry_after_error(|_: &Error, attempt| Duration::from_secs(2 * u64::from(attempt)));
/// let store = MemoryStore::new();
/// let first = charge.run(&store, "order-42", || async { Ok("pending".to_owned()) }).await?;
/// let second = charge.run(&store, "order-42", || async { Ok("paid".to_owned()) }).await?;
/// assert_eq!((first.as_str(), second.as_str()), ("pending", "paid"));
/// # Ok(())
/// # }
/// ```
#[must_use = "an operation does nothing until it is `run`"]
pub struct TypedOperation<T, E, F = ()> {
    pub(super) operation: Operation,
    rules: Rules<T, E, F>,
}

impl Operation {
    /// The same operation, with rules for results of these types.
    fn typed<T: Serialize + DeserializeOwned, E>(self) -> TypedOperation<T, E> {
        TypedOperation { operation: self, rules: Rules::values() }
    }

    /// As [`TypedOperation::terminal`].
    pub fn terminal<T, E, F>(self, is_terminal: F) -> TypedOperation<T, E, F>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned,
        F: Fn(&E) -> bool,
    {
        self.typed().terminal(is_terminal)
    }

    /// As [`TypedOperation::record_if`].
    pub fn record_if<T: Serialize + DeserializeOwned, E>(
        self,
        keeps: fn(&T) -> bool,
    ) -> TypedOperation<T, E> {
        self.typed().record_if(keeps)
    }

    /// As [`TypedOperation::retry_after_error`]; [`retry_after`](Self::retry_after) is for a time that does not
    /// depend on the error.
    pub fn retry_after_error<T: Serialize + DeserializeOwned, E>(
        self,
        retry_after: fn(&E, u32) -> Duration,
    ) -> TypedOperation<T, E> {
        self.typed().retry_after_error(retry_after)
    }
}

impl<T, E, F> TypedOperation<T, E, F> {
    /// Records and replays errors for which `is_terminal` returns `true`; without it, every error releases the key.
    pub fn terminal<G>(self, is_terminal: G) -> TypedOperation<T, E, G>
    where
        E: Serialize + DeserializeOwned,
        G: Fn(&E) -> bool,
    {
        TypedOperation { operation: self.operation, rules: self.rules.terminal(is_terminal) }
    }

    /// Returns values for which `keeps` returns `false` without recording them: the key is released, and the next call
    /// runs the body again. For values that are not final, such as "pending". Such a run counts as an attempt.
    pub fn record_if(self, keeps: fn(&T) -> bool) -> Self {
        Self { rules: self.rules.record_if(keeps), ..self }
    }

    /// When a key whose body failed is due again, given its error and the number of the attempt, from 1. It takes
    /// precedence over [`Operation::retry_after`], and is not called for errors that are [`terminal`](Self::terminal).
    pub fn retry_after_error(self, retry_after: fn(&E, u32) -> Duration) -> Self {
        Self { rules: self.rules.retry_after(retry_after), ..self }
    }

    /// As [`Operation::run`], with these rules.
    ///
    /// # Errors
    ///
    /// The error of the body, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or a function of the rules panics.
    pub fn run<'a, S, K, G, B>(
        &'a self,
        store: &S,
        key: K,
        body: G,
    ) -> impl Future<Output = Result<T, E>> + use<'a, F, S, K, G, B, T, E>
    where
        S: Store,
        K: KeyPart,
        G: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        call(self.operation.clone(), store.clone(), rendered(&key), &self.rules, body)
    }

    /// As [`Operation::run_detached`], with these rules.
    ///
    /// # Errors
    ///
    /// The error of the body, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or a function of the rules panics.
    pub fn run_detached<S, K, G, B>(
        &self,
        store: &S,
        key: K,
        body: G,
    ) -> impl Future<Output = Result<T, E>> + use<F, S, K, G, B, T, E>
    where
        S: Store,
        K: KeyPart,
        F: Clone + Send + 'static,
        G: FnOnce() -> B + Send + 'static,
        B: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (operation, store, key) = (self.operation.clone(), store.clone(), rendered(&key));
        let rules = self.rules.clone();
        async move {
            let call = Call::new(operation, store, key);
            let body = async move { body().await }.map(Unbound);
            super::run_detached(call, false, rules, body).await.map_err(Failure::into_own)
        }
    }

    pub(super) const fn rules(&self) -> &Rules<T, E, F> {
        &self.rules
    }

    pub(super) fn recovering(self) -> Self {
        Self { operation: self.operation.recovering(), ..self }
    }
}

/// The key is already rendered, so the future of `run` does not borrow the key value or the operation.
async fn call<S, T, E, F, G, B>(
    operation: Operation,
    store: S,
    key: RenderedKey,
    mut rules: &Rules<T, E, F>,
    body: G,
) -> Result<T, E>
where
    S: Store,
    G: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    let call = Call::new(operation, store, key);
    let body = pin!(Some(async { body().await }.map(Unbound)));
    super::run(call.prepare(), &mut rules, body).await.map_err(Failure::into_own)
}

impl<T, E, F: Clone> Clone for TypedOperation<T, E, F> {
    fn clone(&self) -> Self {
        Self { operation: self.operation.clone(), rules: self.rules.clone() }
    }
}

impl<T, E, F> fmt::Debug for TypedOperation<T, E, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedOperation")
            .field("operation", &self.operation)
            .field("rules", &self.rules)
            .finish()
    }
}
