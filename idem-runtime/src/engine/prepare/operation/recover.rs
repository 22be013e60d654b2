//! The setting `recover`: what finds out about an earlier run before the body runs again.

use super::Operation;
use super::rules::WithRecover;

impl<R> Operation<R> {
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
    /// doubt). An error of `recover` is not recorded.
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
    pub fn recover<G>(self, recover: G) -> Operation<WithRecover<R, G>> {
        self.recovering().map_rules(|rules| WithRecover::new(rules, recover))
    }
}
