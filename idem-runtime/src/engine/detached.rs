//! Calls of an [`Operation`] in a task of their own, or in the caller's transaction.

use std::pin::pin;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::operation::{Operation, rendered};
use super::typed::TypedOperation;
use super::{Call, Codec, EnteredTransaction, Failure, Values, enter_transaction};
use crate::error::Error;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{KeyPart, Store};

impl Operation {
    /// As [`run`](Self::run), in a separate task that continues when the caller goes away: the body runs to its end,
    /// and its result is recorded. The same as `detach` in the attribute.
    ///
    /// [`drain`](crate::drain) waits for the task. A [`timeout`](Self::timeout) also applies to it.
    ///
    /// # Errors
    ///
    /// The error of the body, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` panics; the key is released first.
    ///
    /// # Cancellation
    ///
    /// After the first poll, dropping the future changes nothing: the call continues. The runtime must outlive the
    /// call.
    ///
    /// ```
    /// # use idem_runtime as idem;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), idem::Error> {
    /// use std::time::Duration;
    /// use idem::{Error, MemoryStore, Operation};
    ///
    /// let (store, charge) = (MemoryStore::new(), Operation::new("payments.charge"));
    /// let call = charge.run_detached(&store, "order-42", || async {
    ///     tokio::time::sleep(Duration::from_millis(20)).await;
    ///     Ok::<_, Error>(7)
    /// });
    /// // The client disconnects.
    /// assert!(tokio::time::timeout(Duration::from_millis(1), call).await.is_err());
    ///
    /// assert!(idem::drain(Duration::from_secs(30)).await.is_complete());
    /// let receipt = charge.run(&store, "order-42", || async { Ok::<_, Error>(0) }).await?;
    /// assert_eq!(receipt, 7);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_detached<S, K, F, B, T, E>(
        &self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<S, K, F, B, T, E>
    where
        S: Store,
        K: KeyPart,
        F: FnOnce() -> B + Send + 'static,
        B: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (operation, store, key) = (self.clone(), store.clone(), rendered(&key));
        async move {
            let call = Call::new(operation, store, key);
            super::run_detached(call, false, Values, async move { body().await }).await
        }
    }

    /// Makes the call in the caller's transaction: the claim, what `body` writes through `transaction`, and the result
    /// are committed together, by the caller. The same as `transaction` in the attribute.
    ///
    /// The store's documentation says what `transaction` can be: for `PostgresStore`, a transaction or connection of
    /// the database client. This method does not commit. The settings `fail_open`, `OnCrash::InDoubt`, `max_attempts`,
    /// `timeout`, `retry_after` and `recover` are refused, because a claim that is rolled back leaves no trace.
    ///
    /// `body` is an async closure, or an `async fn` that takes `&mut Transaction<'_, Postgres>`. Write `'_` for the
    /// lifetime of the transaction: with `'static`, rustc reports that it is not general enough where the call is
    /// spawned.
    ///
    /// # Errors
    ///
    /// The error of the body (what it wrote is undone), and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` panics; what it wrote is undone first.
    ///
    /// # Cancellation
    ///
    /// Dropping the future undoes what the body wrote.
    pub fn run_in_transaction<'t, S, K, P, V, F, T, E>(
        &self,
        store: &S,
        transaction: &'t mut P,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<'t, S, K, P, V, F, T, E>
    where
        S: TransactionStore<Itself: RecordsIn<P::Connection>>,
        K: KeyPart,
        P: Carries<S::Itself, V>,
        F: AsyncFnOnce(&mut P) -> Result<T, E>,
        T: Serialize + DeserializeOwned,
        E: From<Error>,
    {
        let (operation, store, key) = (self.clone(), store.clone().itself(), rendered(&key));
        async move { in_transaction(Call::new(operation, store, key), &Values, transaction, body).await }
    }
}

impl<T, E, C> TypedOperation<T, E, C> {
    /// As [`Operation::run_in_transaction`]. An error that is [`terminal`](Self::terminal) is recorded, and what the
    /// body wrote before it is undone.
    ///
    /// [`record_if`](Self::record_if) and [`retry_after_error`](Self::retry_after_error) are refused.
    ///
    /// # Errors
    ///
    /// The error of the body, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or a function of the rules panics.
    pub async fn run_in_transaction<S, K, P, V, F>(
        &self,
        store: &S,
        transaction: &mut P,
        key: K,
        body: F,
    ) -> Result<T, E>
    where
        S: TransactionStore<Itself: RecordsIn<P::Connection>>,
        K: KeyPart,
        P: Carries<S::Itself, V>,
        F: AsyncFnOnce(&mut P) -> Result<T, E>,
        E: From<Error>,
    {
        let rules = self.rules();
        if rules.is_paced() {
            let detail = "neither `record_if` nor `retry_after` can go with a transaction: what is not recorded is \
                          rolled back and leaves no trace";
            return Err(Error::configuration(self.operation.name(), detail).into());
        }
        let call = Call::new(self.operation.clone(), store.clone().itself(), rendered(&key));
        let body = async |transaction: &mut P| body(transaction).await.map_err(Failure::Body);
        in_transaction(call, rules, transaction, body).await.map_err(Failure::into_own)
    }
}

async fn in_transaction<S, P, V, D, F, T, E>(
    call: Call<S>,
    codec: &D,
    transaction: &mut P,
    body: F,
) -> Result<T, E>
where
    S: RecordsIn<P::Connection>,
    P: Carries<S, V>,
    D: Codec<T, E>,
    F: AsyncFnOnce(&mut P) -> Result<T, E>,
    E: From<Error>,
{
    let mut within = match Box::pin(enter_transaction(call, false, codec, transaction)).await {
        EnteredTransaction::Run(within) => within,
        EnteredTransaction::Done(result) => return result,
    };
    let running = within.running();
    let ended = {
        let body = pin!(Some(body(within.carrier())));
        running.drive(body).await
    };
    within.leave(codec, running, ended).await
}
