//! Operations that call `recover` to find out what an earlier run did, before the body runs again.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::Operation;
use super::steps::{self, Recovery};
use super::typed::TypedOperation;
use crate::error::Error;
use idem_core::KeyPart;
use idem_core::Store;

/// An [`Operation`] with a `recover` function; made by [`Operation::recover`].
#[derive(Clone, Debug)]
#[must_use = "an operation does nothing until it is `run`"]
pub struct RecoveringOperation<G, O = Operation> {
    operation: O,
    recover: G,
}

impl Operation {
    /// Calls `recover` before the body if the previous run began and did not end: its worker died, its caller went
    /// away, it panicked or timed out, or the key is in doubt. `recover` is also called if no attempts are left; then
    /// no body runs.
    ///
    /// | `recover` returns | then |
    /// |---|---|
    /// | `Some(value)` | that is the result; the body does not run |
    /// | `None` | nothing happened that counts; the body runs |
    /// | an error | the key is in doubt, and the caller gets the error |
    ///
    /// `recover` runs under the claim of the new attempt, and the engine renews its lease. It may read the recorded
    /// steps but not make new ones. It is not called after an error that the body returned, or after an operator's
    /// release. If it panics or is dropped, the next call calls it again (under [`OnCrash::InDoubt`]: the key is in
    /// doubt).
    ///
    /// With [`OnCrash::InDoubt`], a call of an operation with `recover` gets a key in doubt and settles the doubt:
    /// `None` means that the body may run. Without it, a key that `recover` left in doubt waits for an operator.
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
    pub const fn recover<G>(self, recover: G) -> RecoveringOperation<G> {
        RecoveringOperation { operation: self.recovering(), recover }
    }
}

impl<T, E, F> TypedOperation<T, E, F> {
    /// As [`Operation::recover`]. An error of `recover` is not recorded.
    pub fn recover<G>(self, recover: G) -> RecoveringOperation<G, Self> {
        RecoveringOperation { operation: self.recovering(), recover }
    }
}

impl<G> RecoveringOperation<G> {
    /// As [`Operation::run`], with `recover` first where it is due.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or `recover` panics.
    pub fn run<'a, S, K, Q, F, B, T, E>(
        &'a self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<'a, G, S, K, Q, F, B, T, E>
    where
        S: Store,
        K: KeyPart,
        G: Fn(Recovery) -> Q,
        Q: Future<Output = Result<Option<T>, E>>,
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        self.operation.run(store, key, || recovered_or_run(&self.recover, body))
    }

    /// As [`Operation::run_detached`], with `recover` first where it is due.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or `recover` panics.
    pub fn run_detached<S, K, Q, F, B, T, E>(
        &self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<G, S, K, Q, F, B, T, E>
    where
        S: Store,
        K: KeyPart,
        G: Fn(Recovery) -> Q + Clone + Send + Sync + 'static,
        Q: Future<Output = Result<Option<T>, E>> + Send + 'static,
        F: FnOnce() -> B + Send + 'static,
        B: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let recover = self.recover.clone();
        self.operation.run_detached(store, key, || async move { recovered_or_run(&recover, body).await })
    }
}

impl<G, V, X, C> RecoveringOperation<G, TypedOperation<V, X, C>> {
    /// As [`TypedOperation::run`], with `recover` first where it is due.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body`, `recover` or a function of the rules panics.
    pub fn run<'a, S, K, Q, F, B>(
        &'a self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<V, X>> + use<'a, G, C, S, K, Q, F, B, V, X>
    where
        S: Store,
        K: KeyPart,
        G: Fn(Recovery) -> Q,
        Q: Future<Output = Result<Option<V>, X>>,
        F: FnOnce() -> B,
        B: Future<Output = Result<V, X>>,
        X: From<Error>,
    {
        self.operation.run(store, key, || recovered_or_run(&self.recover, body))
    }

    /// As [`TypedOperation::run_detached`], with `recover` first where it is due.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body`, `recover` or a function of the rules panics.
    pub fn run_detached<S, K, Q, F, B>(
        &self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<V, X>> + use<G, C, S, K, Q, F, B, V, X>
    where
        S: Store,
        K: KeyPart,
        C: Clone + Send + 'static,
        G: Fn(Recovery) -> Q + Clone + Send + Sync + 'static,
        Q: Future<Output = Result<Option<V>, X>> + Send + 'static,
        F: FnOnce() -> B + Send + 'static,
        B: Future<Output = Result<V, X>> + Send + 'static,
        V: Send + 'static,
        X: From<Error> + Send + 'static,
    {
        let recover = self.recover.clone();
        self.operation.run_detached(store, key, || async move { recovered_or_run(&recover, body).await })
    }
}

/// Runs the body, and before it `recover` if that is due.
async fn recovered_or_run<G, Q, F, B, T, E>(recover: &G, body: F) -> Result<T, E>
where
    G: Fn(Recovery) -> Q,
    Q: Future<Output = Result<Option<T>, E>>,
    F: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
    E: From<Error>,
{
    if let Some(recovery) = steps::begin_recovery().await? {
        let asked = recover(recovery);
        if let Some(result) = steps::ask(asked).await {
            return result;
        }
        steps::confirm().await?;
    }
    if let Some(error) = steps::past_the_limit() {
        return Err(error.into());
    }
    body().await
}
