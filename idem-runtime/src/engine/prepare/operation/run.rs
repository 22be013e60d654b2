//! The calls of an [`Operation`]: in the caller's task, in a task of their own, and in the caller's
//! transaction.
//!
//! Owns how the rules of an operation and its `recover` are combined with a body.

use std::pin::pin;

use super::rules::RulesFor;
use super::{Operation, rendered};
use crate::engine;
use crate::engine::prepare::Call;
use crate::engine::record::codec::ResultRules;
use crate::error::Error;
use idem_core::transaction::{Carries, RecordsIn, TransactionStore};
use idem_core::{KeyPart, Store};

impl<R> Operation<R> {
    /// Calls the operation: runs `body` if this call gets the key, otherwise returns the recorded result.
    ///
    /// `key` is any [`KeyPart`], encoded as the only part of the key. A finished [`Key`](crate::Key), for
    /// example from [`KeyBuilder`](crate::KeyBuilder) or [`Context::key`](crate::Context::key), is used as it
    /// is.
    ///
    /// The call needs a tokio runtime with time enabled.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body`, `recover` or a function of the rules panics. The key is released first, or in the
    /// background if a function of the rules panicked.
    ///
    /// # Cancellation
    ///
    /// Dropping the future drops the body and releases the key in the background (under
    /// [`OnCrash::InDoubt`](crate::OnCrash::InDoubt) the key is then in doubt). If the body has already
    /// succeeded, its result is recorded in the background.
    pub fn run<S, K, F, B, T, E>(
        &self,
        store: &S,
        key: K,
        body: F,
    ) -> impl Future<Output = Result<T, E>> + use<R, S, K, F, B, T, E>
    where
        R: RulesFor<T, E>,
        S: Store,
        K: KeyPart,
        F: FnOnce() -> B,
        B: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        let (operation, rules) = (self.without_rules(), self.rules.clone());
        let (store, key) = (store.clone(), rendered(&key));
        async move {
            let codec = rules.codec();
            let body = pin!(Some(recovered_or_run(&codec, &rules, body)));
            engine::run(Call::new(operation, store, key), codec, body).await
        }
    }

    /// As [`run`](Self::run), in a separate task that continues when the caller goes away: the body runs to
    /// its end, and its result is recorded. The same as `detach` in the attribute.
    ///
    /// [`drain`](crate::drain) waits for the task. A [`timeout`](Self::timeout) also applies to it.
    ///
    /// # Errors
    ///
    /// The error of the body or of `recover`, and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body`, `recover` or a function of the rules panics. The key is released first, or in the
    /// background if a function of the rules panicked.
    ///
    /// # Cancellation
    ///
    /// After the first poll, dropping the future changes nothing: the call continues. The runtime must
    /// outlive the call.
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
    ) -> impl Future<Output = Result<T, E>> + use<R, S, K, F, B, T, E>
    where
        R: RulesFor<T, E, Recovering: Send> + Send + Sync + 'static,
        S: Store,
        K: KeyPart,
        F: FnOnce() -> B + Send + 'static,
        B: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: From<Error> + Send + 'static,
    {
        let (operation, rules) = (self.without_rules(), self.rules.clone());
        let (store, key) = (store.clone(), rendered(&key));
        async move {
            let (call, codec) = (Call::new(operation, store, key), rules.codec());
            let body = async move { recovered_or_run(&codec, &rules, body).await };
            engine::run_detached(call, codec, body).await
        }
    }

    /// Makes the call in the caller's transaction: the claim, what `body` writes through `transaction`, and
    /// the result are committed together, by the caller. The same as `transaction` in the attribute.
    ///
    /// The store's documentation says what `transaction` can be: for `PostgresStore`, a transaction or
    /// connection of the database client. This method does not commit. The settings `fail_open`,
    /// `OnCrash::InDoubt`, `max_attempts`, `timeout`, `retry_after`, `retry_after_error`, `record_if` and
    /// `recover` are refused, because a claim that is rolled back leaves no trace. An error that is
    /// `terminal` is recorded, and what the body wrote before it is undone.
    ///
    /// `body` is an async closure, or an `async fn` that takes, for example,
    /// `&mut Transaction<'_, Postgres>`. Write `'_` for the lifetime of the transaction. With `'static`, the
    /// call cannot be spawned: rustc reports that an implementation is not general enough.
    ///
    /// # Errors
    ///
    /// The error of the body (what it wrote is undone), and every [`Error`] converted into `E`.
    ///
    /// # Panics
    ///
    /// Only if `body` or a function of the rules panics; what the body wrote is undone first.
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
    ) -> impl Future<Output = Result<T, E>> + use<'t, R, S, K, P, V, F, T, E>
    where
        R: RulesFor<T, E>,
        S: TransactionStore<Itself: RecordsIn<P::Connection>>,
        K: KeyPart,
        P: Carries<S::Itself, V>,
        F: AsyncFnOnce(&mut P) -> Result<T, E>,
        E: From<Error>,
    {
        let (operation, store, key) = (self.without_rules(), store.clone().itself(), rendered(&key));
        let codec = self.rules.codec();
        async move {
            let call = Call::new(operation, store, key);
            let entered = Box::pin(engine::enter_transaction(Some(call), codec, transaction));
            let mut entered = match entered.await {
                Ok(entered) => entered,
                Err(result) => return result,
            };
            let running = entered.running();
            let ended = {
                let body = pin!(Some(body(entered.carrier())));
                running.drive(body).await
            };
            entered.leave(ended).await
        }
    }
}

/// Runs `recover` first, if it is due. Then runs the body, unless `recover` decided the result of the call.
async fn recovered_or_run<R, F, B, T, E>(codec: &ResultRules<T, E>, rules: &R, body: F) -> Result<T, E>
where
    R: RulesFor<T, E>,
    F: FnOnce() -> B,
    B: Future<Output = Result<T, E>>,
{
    if R::RECOVERS {
        // Boxed, because few operations recover, and otherwise the future of every call would have room for
        // this future.
        let recovered = Box::pin(async {
            match codec.begin_recovery().await {
                Ok(Some(recovery)) => codec.recover(rules.recover(recovery)).await,
                Ok(None) => None,
                Err(refusal) => Some(refusal),
            }
        });
        if let Some(ended) = recovered.await {
            return ended;
        }
    }
    body().await
}
