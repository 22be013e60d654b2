//! Operations that ask what an earlier run did, before their body runs again.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::{Operation, TerminalOperation};
use super::steps::{self, Recovery};
use crate::error::Error;
use crate::key::KeyPart;
use crate::store::Store;

/// An [`Operation`] that asks about an earlier run first; made by [`Operation::recover`].
#[derive(Clone, Debug)]
#[must_use = "an operation does nothing until it is `run`"]
pub struct RecoveringOperation<G, O = Operation> {
    operation: O,
    recover: G,
}

impl Operation {
    /// Calls `recover` before the body wherever the run before ended without saying what happened: its worker
    /// died, its caller went away, it panicked, or the key is in doubt.
    ///
    /// | it gives | then |
    /// |---|---|
    /// | `Some(value)` | that is the result; the body does not run |
    /// | `None` | nothing happened that counts; the body runs |
    /// | an error | the key is in doubt, and the caller gets the error |
    ///
    /// It runs under the claim of the new attempt, whose lease is kept. It may read the recorded steps, and may
    /// not make any. After an error that the body returned, and after an operator's release, it is not called.
    /// If it panics or is dropped, the next caller's is called again (under [`OnCrash::InDoubt`]: the key is
    /// in doubt).
    ///
    /// With [`OnCrash::InDoubt`] a key in doubt is granted to a caller that recovers, so that it settles the
    /// doubt: `None` is its word that the body may run. Without, a key that `recover` left in doubt waits for an
    /// operator.
    ///
    /// [`OnCrash::InDoubt`]: crate::OnCrash::InDoubt
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use idem::{Error, MemoryStore, Operation, Recovery};
    ///
    /// /// Whether the gateway knows of a payment.
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

impl<F> TerminalOperation<F> {
    /// As [`Operation::recover`].
    pub fn recover<G>(self, recover: G) -> RecoveringOperation<G, Self> {
        let Self { operation, is_terminal } = self;
        RecoveringOperation { operation: Self { operation: operation.recovering(), is_terminal }, recover }
    }
}

impl<G> RecoveringOperation<G> {
    /// As [`Operation::run`], with what is recovered first.
    ///
    /// # Errors
    ///
    /// The body's own, that of `recover`, and every [`Error`] turned into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or `recover` does.
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
}

impl<G, C> RecoveringOperation<G, TerminalOperation<C>> {
    /// As [`TerminalOperation::run`], with what is recovered first. An error of `recover` is not recorded.
    ///
    /// # Errors
    ///
    /// The body's own, that of `recover`, and every [`Error`] turned into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body`, `recover` or the terminal function does.
    pub fn run<'a, S, K, Q, F, B, T, E>(
        &'a self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<'a, G, C, S, K, Q, F, B, T, E>
    where
        S: Store,
        K: KeyPart,
        C: Fn(&E) -> bool,
        G: Fn(Recovery) -> Q,
        Q: Future<Output = Result<Option<T>, E>>,
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        T: Serialize + DeserializeOwned,
        E: From<Error> + Serialize + DeserializeOwned,
    {
        self.operation.run(store, key, || recovered_or_run(&self.recover, body))
    }
}

/// The body, and before it `recover` where that is due.
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
    }
    body().await
}
