//! Sending a request to a store again, for as long as that may help.

use std::pin::pin;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::FutureExt as _;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::error::{StoreError, StoreErrorKind};

/// A retry waits at least this long for the store's answer, even if the retries must end sooner. But a retry
/// never waits longer than one try may take. This constant is also the pause if a backoff ended, which does
/// not happen.
pub(crate) const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause of late retries if a backoff ended. This does not happen, because a backoff has no limit of
/// tries.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The pauses between two tries: doubling from 10 ms to 250 ms, plus a random time of at most the same
/// length.
pub(crate) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(250))
        .without_max_times()
        .with_jitter()
}

/// As [`backoff`], but from 250 ms to 2 s, plus a random time of at most the same length. Background work
/// uses these longer pauses, because many calls may send requests to a store that has just come back.
pub(crate) fn late_backoff() -> ExponentialBuilder {
    backoff().with_min_delay(Duration::from_millis(250)).with_max_delay(Duration::from_secs(2))
}

/// As tokio's `timeout_at`, but without a timer if the answer is there at the first poll.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
pub(crate) fn within<F: Future>(
    until: Instant,
    request: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> {
    async move {
        let mut request = pin!(request);
        match request.as_mut().now_or_never() {
            Some(answer) => Ok(answer),
            // Boxed, so that the future of a call has no room for the timer.
            None => Box::pin(timeout_at(until, request)).await,
        }
    }
}

/// Sends a request at least once, and again after each transient error until `end`. Each try takes at most
/// `most`. `end` is called only if the first poll of the request brings no success.
#[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
pub(crate) fn retry_until<T, F>(
    what: &str,
    end: impl Fn() -> Instant,
    most: Duration,
    mut send: impl FnMut() -> F,
) -> impl Future<Output = Result<T, StoreError>>
where
    F: Future<Output = Result<T, StoreError>>,
{
    async move {
        let (end, answer) = {
            let mut request = pin!(send());
            match request.as_mut().now_or_never() {
                Some(Ok(answer)) => return Ok(answer),
                Some(answer) => (end(), answer),
                None => {
                    let (end, answering) = (end(), Box::pin(timeout(most, request)));
                    (end, answering.await.unwrap_or_else(|_| Err(unanswered(what, most))))
                }
            }
        };
        match answer {
            Ok(answer) => Ok(answer),
            // Boxed, because retries are rare and their future is large.
            Err(error) => Box::pin(again(what, end, most, send, error)).await,
        }
    }
}

/// Sends a request again until `end`, after a try that failed with `error`. Once a try may have been applied,
/// no later refusal makes the outcome certain. The exception is a result that is too large, because then no
/// try was applied.
async fn again<T, F>(
    what: &str,
    end: Instant,
    most: Duration,
    mut send: impl FnMut() -> F,
    mut error: StoreError,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pauses = backoff().build();
    let mut unknown: Option<StoreError> = None;
    loop {
        if error.is_outcome_unknown() {
            unknown.get_or_insert_with(|| error.clone());
        }
        let left = end.saturating_duration_since(Instant::now());
        if !error.is_transient() || left.is_zero() {
            let is_too_large = error.kind() == StoreErrorKind::TooLarge;
            return Err(unknown.filter(|_| !is_too_large).unwrap_or(error));
        }
        sleep(pauses.next().unwrap_or(LEAST_TIMEOUT).min(left)).await;
        let left = end.saturating_duration_since(Instant::now());
        let patience = left.max(LEAST_TIMEOUT).min(most);
        match answered(what, patience, send()).await {
            Ok(answer) => return Ok(answer),
            Err(failed) => error = failed,
        }
    }
}

/// The answer to a request, or an error if the store does not answer within `patience`.
pub(crate) async fn answered<T>(
    what: &str,
    patience: Duration,
    request: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    within(Instant::now() + patience, request).await.unwrap_or_else(|_| Err(unanswered(what, patience)))
}

pub(crate) fn unanswered(what: &str, patience: Duration) -> StoreError {
    StoreError::outcome_unknown(format!("it did not answer about {what} within {patience:?}"))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Many calls that lost a store at the same time must not all ask it again at the same time.
    #[test]
    fn the_pauses_of_each_call_are_its_own() {
        for pauses in [backoff(), late_backoff()] {
            let of_one_call = || pauses.build().take(4).collect::<Vec<_>>();
            let different = (0..100).map(|_| of_one_call()).collect::<HashSet<_>>();
            assert!(different.len() > 90, "{} of 100", different.len());
        }
    }

    /// What `retry_until` returns if the first try may have been applied and the next try fails with
    /// `second`.
    async fn after_a_lost_answer(second: StoreError) -> StoreErrorKind {
        let mut errors = vec![second, StoreError::outcome_unknown("lost")];
        let end = Instant::now() + Duration::from_secs(5);
        let ask = || std::future::ready(Err::<(), _>(errors.pop().unwrap()));
        retry_until("the result", || end, LEAST_TIMEOUT, ask).await.unwrap_err().kind()
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_after_a_lost_answer_leaves_the_outcome_unknown() {
        let refused = after_a_lost_answer(StoreError::configuration("no")).await;
        assert_eq!(refused, StoreErrorKind::OutcomeUnknown);
        let too_large = after_a_lost_answer(StoreError::too_large(2, 1)).await;
        assert_eq!(too_large, StoreErrorKind::TooLarge);
    }
}
