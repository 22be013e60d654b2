//! Chooses the connection for a request, and retries the request.

use std::time::{Duration, Instant};

use redis::Value;

use super::scripts::Request;
use super::{RedisStore, failure};
use idem_core::StoreError;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::retry::retried;

impl RedisStore {
    /// Sends a request in the stores' own runtime, and retries until there is an answer or the time is over.
    /// The request continues even if the caller's runtime is blocked or gone.
    pub(super) fn ask_apart(
        &self,
        request: Request,
        time: Duration,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send {
        let connection = self.0.connection.clone();
        apart(async move { retried(time, || connection.ask(&request)).await })
    }

    /// Sends a request once on the connection of the caller's runtime. If that fails, sends and retries the
    /// request in the stores' own runtime. On a cluster, a caller's runtime has no connection, so the stores'
    /// own runtime sends all requests.
    pub(super) fn ask(&self, request: Request) -> impl Future<Output = Result<Value, StoreError>> + Send {
        async move {
            let Some(own) = self.0.connection.own() else {
                return Box::pin(self.ask_apart(request, self.0.operation_timeout)).await;
            };
            let begin = Instant::now();
            let error = match self.0.runtime_connections.ask(own, &request).await {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(error)) => Some(failure::asking(error)),
                None => None,
            };
            let left = self.0.operation_timeout.saturating_sub(begin.elapsed());
            // Boxed, because this path is rare and would otherwise enlarge the future of every call.
            let answer = Box::pin(self.ask_apart(request, left)).await;
            match (answer, error) {
                // The first try may have been applied, whatever the later tries return.
                (Err(_), Some(first)) if first.is_outcome_unknown() => Err(first),
                (answer, _) => answer,
            }
        }
    }
}
