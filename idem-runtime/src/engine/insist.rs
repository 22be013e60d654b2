//! Asking a store again for as long as that may help.

use std::time::Duration;

use backon::BackoffBuilder;
use tokio::time::{Instant, sleep, timeout};

use super::wait::backoff;
use crate::error::StoreError;

/// The least time a store is given to answer, whatever is left.
pub(super) const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// Asks until `end`, each time for at most `most`, and once in any case.
pub(super) async fn insist<T, F>(
    what: &str,
    end: Instant,
    most: Duration,
    mut ask: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = backoff().build();
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let patience = left.max(LEAST_TIMEOUT).min(most);
        let asked = timeout(patience, ask()).await;
        let error = match asked.unwrap_or_else(|_| Err(unanswered(what, patience))) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let left = end.saturating_duration_since(Instant::now());
        if !error.is_transient() || left.is_zero() {
            return Err(error);
        }
        sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(left)).await;
    }
}

/// The error of a store that did not answer in time.
pub(super) fn unanswered(what: &str, patience: Duration) -> StoreError {
    StoreError::outcome_unknown(format!("it did not answer about {what} within {patience:?}"))
}
