//! Tests of `timeout`, `retry_after`, `record_if` and `store_timeout` in the attribute.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem::{MemoryStore, idempotent};
use tokio::time::advance;

use crate::support::Failure;

const SECOND: Duration = Duration::from_secs(1);

#[derive(Default)]
struct App {
    store: MemoryStore,
    runs: AtomicU32,
}

impl App {
    fn run(&self) -> u32 {
        self.runs.fetch_add(1, Ordering::SeqCst) + 1
    }
}

fn growing(_: &Failure, attempt: u32) -> Duration {
    SECOND * attempt
}

fn is_even(number: &u32) -> bool {
    number.is_multiple_of(2)
}

#[idempotent(key = "{id}", timeout = "5s", store = app.store)]
async fn stuck(app: &App, id: u8) -> Result<bool, Failure> {
    app.run();
    std::future::pending().await
}

#[idempotent(key = "{id}", timeout = "5s", missing_key = "run", detach, store = app.store)]
async fn stuck_detached(app: Arc<App>, id: Option<u8>) -> Result<u32, Failure> {
    let _dropped = Dropped(&app);
    std::future::pending().await
}

/// Counts when it is dropped.
struct Dropped<'a>(&'a App);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.run();
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_takes_too_long_is_ended() {
    assert_eq!(stuck(&App::default(), 1).await.unwrap_err().kind(), "timed_out");
    let app = Arc::new(App::default());
    assert_eq!(stuck_detached(app.clone(), None).await.unwrap_err().kind(), "timed_out");
    assert_eq!(app.runs.load(Ordering::SeqCst), 1, "the body is dropped");
}

#[idempotent(key = "{id}", retry_after = growing, store = app.store)]
async fn by_function(app: &App, id: u8) -> Result<u32, Failure> {
    if app.run() < 3 { Err(Failure::Transient) } else { Ok(3) }
}

#[idempotent(key = "{id}", retry_after = "1s..5m", store = app.store)]
async fn by_range(app: &App, id: u8) -> Result<u32, Failure> {
    app.run();
    Err(Failure::Transient)
}

#[idempotent(key = "{id}", retry_after = 2 * SECOND, store_timeout = SECOND, store = app.store)]
async fn by_expression(app: &App, id: u8) -> Result<u32, Failure> {
    app.run();
    Err(Failure::Transient)
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_body_failed_is_due_when_the_attribute_says() {
    let app = App::default();
    assert_eq!(by_function(&app, 1).await.unwrap_err().kind(), "body");
    assert_eq!(by_function(&app, 1).await.unwrap_err().kind(), "not_due");
    advance(SECOND).await;
    assert_eq!(by_function(&app, 1).await.unwrap_err().kind(), "body");
    advance(SECOND).await;
    assert_eq!(by_function(&app, 1).await.unwrap_err().kind(), "not_due", "the second time is longer");
    advance(SECOND).await;
    assert_eq!(by_function(&app, 1).await.unwrap(), 3);

    for _ in 0..2 {
        assert_eq!(by_range(&app, 1).await.unwrap_err().kind(), "body");
        assert_eq!(by_range(&app, 1).await.unwrap_err().kind(), "not_due");
        advance(2 * SECOND).await;
        assert_eq!(by_expression(&app, 2).await.unwrap_err().kind(), "body");
        advance(2 * SECOND).await;
    }
}

#[idempotent(key = "{id}", record_if = is_even, store = app.store)]
async fn even(app: &App, id: u8) -> Result<u32, Failure> {
    Ok(app.run())
}

#[tokio::test]
async fn a_value_that_is_not_to_be_kept_is_returned_and_the_key_released() {
    let app = App::default();
    for number in [1, 2, 2, 2] {
        assert_eq!(even(&app, 1).await.unwrap(), number);
    }
}
