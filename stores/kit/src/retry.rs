//! Retries a request whose answer was lost, or for which the store was unavailable for a moment.
//!
//! The protocol lets the same owner send each request again. So a store that talks to a server retries until
//! it has an answer or its time is over.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::time::{Instant, sleep, timeout_at};

use idem_core::StoreError;

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Calls `ask` until the answer is final or `time` is over. A success is final, and so is an error that is
/// not transient.
///
/// # Errors
///
/// The last error. If any try may have been applied, the error is
/// [`OutcomeUnknown`](idem_core::StoreErrorKind::OutcomeUnknown), whatever later tries return.
pub async fn retried<T, F>(time: Duration, ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    repeated(time, ask, |earlier, error| earlier.is_outcome_unknown() && !error.is_outcome_unknown()).await
}

/// As [`retried`], for tries that leave no effect, such as the first connection to a server.
///
/// # Errors
///
/// The last error that is not `OutcomeUnknown`, because `OutcomeUnknown` may tell only that the time ended
/// during a try. If every try ended with `OutcomeUnknown`, the first of these errors.
pub async fn retried_with_cause<T, F>(time: Duration, ask: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    repeated(time, ask, |_, error| error.is_outcome_unknown()).await
}

/// Calls `ask` until the answer is final or `time` is over. Keeps the earlier of two errors if
/// `says_more(earlier, later)` returns `true`.
async fn repeated<T, F>(
    time: Duration,
    mut ask: impl FnMut() -> F,
    says_more: fn(&StoreError, &StoreError) -> bool,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let begin = Instant::now();
    let deadline = begin.checked_add(time);
    let (mut pauses, mut kept) = (None, None);
    loop {
        let answer = match deadline {
            Some(deadline) => timeout_at(deadline, ask()).await.unwrap_or_else(|_| Err(late(time))),
            None => ask().await,
        };
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_final = !error.is_transient();
        let error = kept.filter(|earlier| says_more(earlier, &error)).unwrap_or(error);
        let pause = pauses
            .get_or_insert_with(|| {
                ExponentialBuilder::default()
                    .with_jitter()
                    .with_min_delay(FIRST_PAUSE)
                    .with_max_delay(LONGEST_PAUSE)
                    .without_max_times()
                    .build()
            })
            .next()
            .unwrap_or(LONGEST_PAUSE);
        if is_final || begin.elapsed().saturating_add(pause) >= time {
            return Err(error);
        }
        kept = Some(error);
        sleep(pause).await;
    }
}

fn late(time: Duration) -> StoreError {
    StoreError::outcome_unknown(format!("no answer within the operation timeout of {time:?}"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;

    use super::*;
    use idem_core::StoreErrorKind;

    const TIME: Duration = Duration::from_secs(2);

    async fn outcome(answers: impl Fn(u32) -> Result<u32, StoreError>) -> (Result<u32, StoreError>, u32) {
        let count = Cell::new(0);
        let answer = retried(TIME, || {
            count.set(count.get() + 1);
            std::future::ready(answers(count.get()))
        })
        .await;
        (answer, count.get())
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_of_absence_is_waited_out() {
        let away = |tries| if tries < 4 { Err(StoreError::unavailable("away")) } else { Ok(tries) };
        let (answer, tries) = outcome(away).await;
        assert_eq!((answer.unwrap(), tries), (4, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_error_that_asking_again_would_not_change_is_given_at_once() {
        let (answer, tries) = outcome(|_| Err(StoreError::configuration("wrong"))).await;
        assert_eq!((answer.unwrap_err().kind(), tries), (StoreErrorKind::Configuration, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_within_its_time_and_never_asks_without_a_pause() {
        let begin = Instant::now();
        let (answer, tries) = outcome(|_| Err(StoreError::unavailable("away"))).await;
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::Unavailable);
        assert!(begin.elapsed() <= TIME && (5..30).contains(&tries), "{tries} tries");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_leaves_the_outcome_unknown_whatever_comes_after_it() {
        for after in [StoreError::unavailable("away"), StoreError::configuration("no")] {
            let lost =
                |tries| Err(if tries == 1 { StoreError::outcome_unknown("cut") } else { after.clone() });
            assert_eq!(outcome(lost).await.0.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_answer_at_all_is_an_unknown_outcome_when_the_time_is_over() {
        let begin = Instant::now();
        let answer = retried(TIME, pending::<Result<(), StoreError>>).await;
        assert_eq!(answer.unwrap_err().kind(), StoreErrorKind::OutcomeUnknown);
        assert_eq!(begin.elapsed(), TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn the_error_of_the_try_before_is_kept_where_the_time_ends_in_the_middle_of_one() {
        let count = Cell::new(0);
        let answer = retried_with_cause(TIME, || {
            count.set(count.get() + 1);
            let first = count.get() == 1;
            async move {
                match first {
                    true => Err::<(), _>(StoreError::unavailable("the reason")),
                    false => pending().await,
                }
            }
        })
        .await;
        let error = answer.unwrap_err();
        assert_eq!((error.kind(), count.get()), (StoreErrorKind::Unavailable, 2));
        assert!(error.to_string().contains("the reason"), "{error}");
    }
}
