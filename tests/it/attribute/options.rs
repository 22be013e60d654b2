//! Tests of the options. `keys` tests `key` and `key_fn`, and `tests/ui/pass` tests `store` and `crate`.
//! `scope`, `recover` and `transaction` have files of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use idem::{Outcome, idempotent, observe};
use tokio::time::{advance, sleep, timeout};

use super::{App, Failure, Run, ran};

const SECOND: Duration = Duration::from_secs(1);

#[idempotent(key = "{id}", fingerprint = amount, store = app.store)]
async fn fingerprinted(app: &App, id: u8, amount: u32) -> Run {
    app.run()
}

#[tokio::test]
async fn another_fingerprint_under_the_same_key_is_a_mismatch() {
    let app = App::default();
    for _ in 0..2 {
        assert_eq!(ran(fingerprinted(&app, 1, 5).await).0, 1);
    }
    assert_eq!(fingerprinted(&app, 1, 6).await.unwrap_err().kind(), "mismatch");
}

#[idempotent(key = "{id}", terminal = Failure::is_final, store = app.store)]
async fn fails(app: &App, id: u8, failure: Failure) -> Run {
    app.run()?;
    Err(failure)
}

#[tokio::test]
async fn a_terminal_error_is_replayed_and_another_is_not() {
    let app = App::default();
    for _ in 0..2 {
        assert!(fails(&app, 1, Failure::Final).await.unwrap_err().is_final());
    }
    assert_eq!(app.runs.load(Ordering::SeqCst), 1);
    for _ in 0..2 {
        assert!(!fails(&app, 2, Failure::Transient).await.unwrap_err().is_final());
    }
    assert_eq!(app.runs.load(Ordering::SeqCst), 3);
}

#[idempotent(key = "{id}", max_attempts = 2, store = app.store)]
async fn limited(app: &App, id: u8) -> Run {
    app.run()?;
    Err(Failure::Transient)
}

#[tokio::test]
async fn a_body_is_not_started_more_often_than_max_attempts() {
    let app = App::default();
    for kind in ["body", "body", "exhausted"] {
        assert_eq!(limited(&app, 1).await.unwrap_err().kind(), kind);
    }
    assert_eq!(app.runs.load(Ordering::SeqCst), 2);
}

const LEASE: Duration = Duration::from_secs(20);

#[idempotent(key = "{id}", lease = LEASE, wait = "1m 30s", on_crash = "in_doubt", store = app.store)]
async fn slow(app: &App, id: u8) -> Run {
    sleep(SECOND * 60).await;
    app.run()
}

#[idempotent(key = "{id}", ttl = "2s", on_crash = "rerun", fail_open, store = app.store)]
async fn refused_at_once(app: &App, id: u8) -> Run {
    sleep(SECOND * 60).await;
    app.run()
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_with_wait_and_is_refused_without_and_the_ttl_is_how_long_a_result_is_kept() {
    let app = App::default();
    let (first, second) = tokio::join!(slow(&app, 1), slow(&app, 1));
    assert_eq!((ran(first).0, ran(second).0), (1, 1));
    let (first, second) = tokio::join!(refused_at_once(&app, 1), refused_at_once(&app, 1));
    assert_eq!(ran(first).0, 2);
    assert_eq!(second.unwrap_err().kind(), "in_flight");
    advance(SECOND).await;
    assert_eq!(ran(refused_at_once(&app, 1).await).0, 2);
    advance(SECOND * 2).await;
    assert_eq!(ran(refused_at_once(&app, 1).await).0, 3);
}

#[idempotent(key = "{id}/{part}", missing_key = "reject", store = app.store)]
async fn rejecting(app: &App, id: u8, part: Option<&str>) -> Run {
    app.run()
}

#[idempotent(key = "{id}/{part}", missing_key = "run", store = app.store)]
async fn running(app: &App, id: u8, part: Option<&str>) -> Run {
    app.run()
}

#[tokio::test]
async fn a_call_without_a_value_is_refused_by_reject_and_runs_plainly_every_time_by_run() {
    let app = App::default();
    let refused = observe(rejecting(&app, 1, None)).await;
    assert_eq!((refused.value.unwrap_err().kind(), refused.outcome), ("missing_key", None));
    for number in [1, 2] {
        let observed = observe(running(&app, 1, None)).await;
        assert_eq!(ran(observed.value), (number, String::new()), "without a context");
        assert_eq!(observed.outcome, Some(Outcome::Unprotected));
    }
    for _ in 0..2 {
        assert_eq!(ran(rejecting(&app, 1, Some("a/b")).await), (3, "1/a%2Fb".into()));
        assert_eq!(ran(running(&app, 1, Some("a")).await), (4, "1/a".into()));
    }
    // An empty value is present, so `missing_key = "run"` does not apply. The call is refused, because an
    // empty value cannot be part of a key.
    for empty in [rejecting(&app, 1, Some("")).await, running(&app, 1, Some("")).await] {
        assert_eq!(empty.unwrap_err().kind(), "missing_key");
    }
}

#[idempotent(key = "{id}", missing_key = "run", detach, store = app.store)]
async fn detached(app: Arc<App>, id: Option<u8>, _guard: Arc<()>) -> Run {
    sleep(SECOND).await;
    app.run()
}

#[tokio::test(start_paused = true)]
async fn a_detached_body_finishes_without_its_caller_and_keeps_its_arguments_until_then() {
    for id in [Some(1), None] {
        let (app, guard) = (Arc::new(App::default()), Arc::new(()));
        let call = detached(app.clone(), id, guard.clone());
        assert!(timeout(SECOND / 2, call).await.is_err());
        assert_eq!((Arc::strong_count(&guard), app.runs.load(Ordering::SeqCst)), (2, 0), "{id:?}");
        sleep(SECOND).await;
        assert_eq!((Arc::strong_count(&guard), app.runs.load(Ordering::SeqCst)), (1, 1), "{id:?}");
    }
}

#[idempotent(key = "{id}", timeout = "5s", store = app.store)]
async fn stuck(app: &App, id: u8) -> Run {
    app.run()?;
    std::future::pending().await
}

#[idempotent(key = "{id}", timeout = "5s", missing_key = "run", detach, store = app.store)]
async fn stuck_detached(app: Arc<App>, id: Option<u8>, guard: Arc<()>) -> Run {
    let _guard = guard;
    std::future::pending().await
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_ended() {
    let (app, guard) = (Arc::new(App::default()), Arc::new(()));
    assert_eq!(stuck(&app, 1).await.unwrap_err().kind(), "timed_out");
    let call = stuck_detached(app.clone(), None, guard.clone());
    assert_eq!(call.await.unwrap_err().kind(), "timed_out");
    assert_eq!(Arc::strong_count(&guard), 1, "the body is dropped");
}

fn growing(_: &Failure, attempt: u32) -> Duration {
    SECOND * attempt
}

#[idempotent(key = "{id}", retry_after = growing, store_timeout = SECOND, store = app.store)]
async fn paced(app: &App, id: u8) -> Run {
    let ran = app.run()?;
    if ran.number < 3 { Err(Failure::Transient) } else { Ok(ran) }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_body_failed_is_due_when_the_attribute_says() {
    let app = App::default();
    // The delay after the second failure is longer than one second.
    for (kind, pause) in [("body", 0), ("not_due", 1), ("body", 1), ("not_due", 1)] {
        assert_eq!(paced(&app, 1).await.unwrap_err().kind(), kind);
        advance(SECOND * pause).await;
    }
    assert_eq!(ran(paced(&app, 1).await).0, 3);
}

#[idempotent(key = "{id}", record_if = |ran| ran.number.is_multiple_of(2), store = app.store)]
async fn even(app: &App, id: u8) -> Run {
    app.run()
}

#[tokio::test]
async fn a_value_that_is_not_to_be_kept_is_returned_and_the_key_released() {
    let app = App::default();
    for number in [1, 2, 2, 2] {
        assert_eq!(ran(even(&app, 1).await).0, number);
    }
}
