//! Waiting for the call in flight: one poll a key and process, and a bell for what happens here.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use futures_util::future::select;
use tokio::time::{Instant, timeout, timeout_at};

use super::call::Prepared;
use super::claim::{Asked, ask, refused_by_store};
use super::report::Event;
use crate::error::Error;
use crate::protocol::ClaimAnswer;
use crate::store::{Place, Seat, Seen, Store};

/// The pauses between two questions to a store: doubling from 10 ms to a quarter of a second, and up to
/// as much again at random.
pub(super) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(250))
        .without_max_times()
        .with_jitter()
}

/// How old the last answer may be before a waiter asks for itself.
const STALE: Duration = Duration::from_secs(1);

/// Waits until the key is this call's or has a result, as long as the policy allows.
pub(super) async fn turn<S: Store>(
    call: &Arc<Prepared<S>>,
    retry_after: Duration,
) -> Result<Asked<S>, Error> {
    let started = Instant::now();
    let wait = call.policy.wait;
    let seat = call.store.waiters().join(&call.key, call.fingerprint);
    let place = seat.place();
    place.saw_busy(retry_after);
    let mut seen = place.seen.subscribe();
    let shared = async {
        loop {
            // A sender that is gone has nothing to tell: the place outlives its seats.
            let changed = seen.changed().await.is_ok();
            match &*seen.borrow_and_update() {
                Seen::Replay(replay) => return Ok(Asked::Refused(ClaimAnswer::Replay(replay.clone()))),
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
                // Who has the turn may be a task that nobody polls: then it is not waited for.
                Err(_) if place.busy_for(STALE).is_none() => {
                    if let Ok(asked) = ask_once(call, &seat, started + wait).await? {
                        return Ok(asked);
                    }
                }
                Err(_) => {}
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

/// Asks the store until something other than busy comes of it.
async fn poll<S: Store>(call: &Arc<Prepared<S>>, seat: &Seat, deadline: Instant) -> Result<Asked<S>, Error> {
    let mut pauses = backoff().build();
    loop {
        // The first question closes the gap between the refusal and joining here.
        let busy_for = match ask_once(call, seat, deadline).await? {
            Ok(asked) => return Ok(asked),
            Err(busy_for) => busy_for,
        };
        let pause = pauses.next().unwrap_or(STALE).min(busy_for);
        let _ = timeout(pause, seat.place().bell.notified()).await;
    }
}

/// Asks the store: what comes of it, or for how long the key is busy.
async fn ask_once<S: Store>(
    call: &Arc<Prepared<S>>,
    seat: &Seat,
    deadline: Instant,
) -> Result<Result<Asked<S>, Duration>, Error> {
    match ask(call).await {
        Ok(Asked::Refused(ClaimAnswer::Busy { retry_after } | ClaimAnswer::RetryAt { retry_after })) => {
            seat.place().saw_busy(retry_after);
            Ok(Err(retry_after))
        }
        Ok(Asked::Refused(ClaimAnswer::Replay(replay))) => {
            seat.share(replay.clone());
            Ok(Ok(Asked::Refused(ClaimAnswer::Replay(replay))))
        }
        Ok(asked) => Ok(Ok(asked)),
        // It is known to be in flight elsewhere: not to be run unprotected, but worth waiting.
        Err(error) if error.is_transient() && Instant::now() < deadline => Ok(Err(Duration::MAX)),
        Err(error) => Err(refused_by_store(call, error)),
    }
}

/// The time to wait is over. Unless somebody here asked just now, this call asks once more, to tell
/// the truth.
async fn time_is_up<S: Store>(call: &Arc<Prepared<S>>, place: &Place) -> Result<Asked<S>, Error> {
    match place.busy_for(STALE) {
        Some(retry_after) => Ok(Asked::Refused(ClaimAnswer::Busy { retry_after })),
        None => ask(call).await.map_err(|error| refused_by_store(call, error)),
    }
}
