//! Waiting for the call in flight. One waiter of a process polls for each key, and what happens in this process wakes
//! it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::future::select;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::call::Prepared;
use super::super::report::Event;
use super::super::retry::backoff;
use super::super::waiters::{Place, Question, Seat, Seen, Waiters};
use super::{Asked, ask, refused_by_store};
use crate::error::Error;
use idem_core::Store;
use idem_core::protocol::ClaimAnswer;

/// How old the last answer may be before a waiter asks the store itself.
const STALE: Duration = Duration::from_secs(1);

/// Waits until this call gets the key or a result, for as long as the policy allows.
pub(super) async fn turn<S: Store>(
    call: &Arc<Prepared<S>>,
    (retry_after, due): (Duration, bool),
) -> Result<Asked<S>, Error> {
    let started = Instant::now();
    let wait = call.policy.wait;
    let seat = Waiters::of(&call.store).join(&call.key, call.fingerprint);
    let place = seat.place();
    place.saw_busy(retry_after, due);
    let mut seen = place.seen.subscribe();
    let shared = async {
        loop {
            // An error means that the sender is gone. That does not happen here, because the place outlives its seats.
            let changed = seen.changed().await.is_ok();
            match &*seen.borrow_and_update() {
                Seen::Replay(replay) => return Ok(Asked::NotGranted(ClaimAnswer::Replay(replay.clone()))),
                Seen::Busy { .. } if changed => {}
                Seen::Busy { .. } => break,
            }
        }
        std::future::pending().await
    };
    let own = async {
        loop {
            match timeout(STALE, place.turn.lock()).await {
                Ok(_turn) => return poll(call, &seat, started + wait).await,
                // The waiter that has the turn may be in a task that nobody polls. Then one of the others asks.
                Err(_) => {
                    let patience = call.policy.store_timeout;
                    if let Some(question) = place.ask_unless_attended(STALE, patience)
                        && let Ok(asked) = ask_once(call, &seat, question, started + wait).await?
                    {
                        return Ok(asked);
                    }
                }
            }
        }
    };
    let first = async { select(pin!(shared), pin!(own)).await.factor_first().0 };
    let waited = timeout_at(started + wait, first).await;
    call.report(Event::Waited(started.elapsed()), 0);
    match waited {
        Ok(asked) => asked,
        Err(_) => time_is_up(call, place).await,
    }
}

/// Asks the store until the answer is something other than busy.
async fn poll<S: Store>(call: &Arc<Prepared<S>>, seat: &Seat, deadline: Instant) -> Result<Asked<S>, Error> {
    let mut pauses = backoff().build();
    loop {
        // When the time of several waiters ends at once, each gets the turn after the other. None of them may send a
        // request then.
        if Instant::now() >= deadline {
            std::future::pending::<()>().await;
        }
        // The first request finds out what happened between the refusal and joining the waiters.
        let busy_for = match ask_once(call, seat, seat.place().ask(), deadline).await? {
            Ok(asked) => return Ok(asked),
            Err(busy_for) => busy_for,
        };
        let pause = pauses.next().unwrap_or(STALE).min(busy_for);
        let _ = timeout(pause, seat.place().bell.notified()).await;
    }
}

/// How long to wait after this answer, and whether the key is due; `None` if waiting does not help.
pub(super) const fn worth_waiting(answer: &ClaimAnswer) -> Option<(Duration, bool)> {
    match answer {
        ClaimAnswer::Busy { retry_after } => Some((*retry_after, true)),
        ClaimAnswer::RetryAt { retry_after } => Some((*retry_after, false)),
        _ => None,
    }
}

/// Asks the store once. Returns its answer, or how long the key is busy.
async fn ask_once<S: Store>(
    call: &Arc<Prepared<S>>,
    seat: &Seat,
    question: Question<'_>,
    deadline: Instant,
) -> Result<Result<Asked<S>, Duration>, Error> {
    let asked = ask(call).await;
    drop(question);
    match asked {
        Ok(Asked::NotGranted(answer)) if let Some((retry_after, due)) = worth_waiting(&answer) => {
            seat.place().saw_busy(retry_after, due);
            Ok(Err(retry_after))
        }
        Ok(Asked::NotGranted(ClaimAnswer::Replay(replay))) => {
            seat.share(replay.clone());
            Ok(Ok(Asked::NotGranted(ClaimAnswer::Replay(replay))))
        }
        Ok(asked) => Ok(Ok(asked)),
        // The key is known to be in flight elsewhere, so the body must not run unprotected; waiting may help.
        Err(error) if error.is_transient() && Instant::now() < deadline => Ok(Err(Duration::MAX)),
        Err(error) => Err(refused_by_store(call, error)),
    }
}

/// The time to wait is over. If no waiter of this process asked just now or is asking, this call asks once more, so
/// that its error is up to date.
async fn time_is_up<S: Store>(call: &Arc<Prepared<S>>, place: &Place) -> Result<Asked<S>, Error> {
    match place.busy_for(STALE, call.policy.store_timeout) {
        Some(answer) => Ok(Asked::NotGranted(answer)),
        None => ask(call).await.map_err(|error| refused_by_store(call, error)),
    }
}
