//! The pace of attempts: how long one may take, and when the next is due.

use std::time::Duration;

use super::Operation;
use crate::engine::prepare::retry_pace::RetryAfter;

impl<R> Operation<R> {
    /// How long one attempt may take, `recover` included; no limit unless set. More than zero, at most 100 years.
    ///
    /// After that time the body is dropped, and the caller gets [`Error::TimedOut`](crate::Error::TimedOut). It is not
    /// known what the body did, so this counts as a crash: the next run is `recovered`, or the key is in doubt under
    /// [`OnCrash::InDoubt`](crate::OnCrash::InDoubt).
    ///
    /// A body can only be dropped where it awaits. If it blocks its thread, it continues until the next await; if it
    /// returns before that, its result counts. Tasks that it spawned continue.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.policy.to_mut().timeout = Some(timeout);
        self
    }

    /// When a key whose body failed is due again; at once unless set. Before that, a call gets
    /// [`Error::NotDue`](crate::Error::NotDue), or waits if the operation has a [`wait`](Self::wait).
    ///
    /// It applies to errors that the body returns. After a crash, a dropped caller, a panic or a timeout, the key is
    /// due at once or when the lease is over.
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
}
