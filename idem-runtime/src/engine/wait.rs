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

/// The pauses between two questions to a store: 10 ms to half a second, doubling, with jitter.
pub(super) fn backoff() -> ExponentialBuilder {
    ExponentialBuilder::new()
        .with_min_delay(Duration::from_millis(10))
        .with_max_delay(Duration::from_millis(500))
        .without_max_times()
        .with_jitter()
}

/// Waits until the key is this call's or has a result, as long as the policy allows.
pub(super) async fn turn<S: Store>(
    call: &Arc<Prepared<S>>,
    retry_after: Duration,
) -> Result<Asked<S>, Error> {
    let started = Instant::now();
    let wait = call.policy.wait;
    let seat = call.store.waiters().join(&call.key, call.fingerprint);
    let place = seat.place();
    place.saw_busy_until(started + retry_after);
    let mut seen = place.seen.subscribe();
    let shared = async {
        loop {
            // A sender that is gone has nothing to tell: the place outlives its seats.
            let changed = seen.changed().await.is_ok();
            match &*seen.borrow_and_update() {
                Seen::Replay(replay) => return Ok(Asked::Refused(ClaimAnswer::Replay(replay.clone()))),
                Seen::Busy(_) if changed => {}
                Seen::Busy(_) => break,
            }
        }
        std::future::pending().await
    };
    let own = async {
        let _turn = place.turn.lock().await;
        poll(call, &seat, place, started + wait).await
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
async fn poll<S: Store>(
    call: &Arc<Prepared<S>>,
    seat: &Seat,
    place: &Place,
    deadline: Instant,
) -> Result<Asked<S>, Error> {
    let mut pauses = backoff().build();
    loop {
        // The first question closes the gap between the refusal and joining here.
        let busy_for = match ask(call).await {
            Ok(Asked::Refused(ClaimAnswer::Busy { retry_after } | ClaimAnswer::RetryAt { retry_after })) => {
                place.saw_busy_until(Instant::now() + retry_after);
                retry_after
            }
            Ok(Asked::Refused(ClaimAnswer::Replay(replay))) => {
                seat.share(replay.clone());
                return Ok(Asked::Refused(ClaimAnswer::Replay(replay)));
            }
            Ok(asked) => return Ok(asked),
            // It is known to be in flight elsewhere: not to be run unprotected, but worth waiting.
            Err(error) if error.is_transient() && Instant::now() < deadline => Duration::MAX,
            Err(error) => return Err(refused_by_store(call, error)),
        };
        let pause = pauses.next().unwrap_or(Duration::from_millis(500)).min(busy_for);
        let _ = timeout(pause, place.bell.notified()).await;
    }
}

/// The time to wait is over. Who has not asked lately asks once more, to tell the truth.
async fn time_is_up<S: Store>(call: &Arc<Prepared<S>>, place: &Place) -> Result<Asked<S>, Error> {
    let left = place.busy_until().saturating_duration_since(Instant::now());
    if left.is_zero() {
        return ask(call).await.map_err(|error| refused_by_store(call, error));
    }
    Ok(Asked::Refused(ClaimAnswer::Busy { retry_after: left }))
}
