//! Options other than the key: fingerprints, terminal errors, attempts, waiting, the ttl, detached bodies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use idem::idempotent;

use super::{App, Failure, Run, ran};

#[idempotent(key = "{id}", fingerprint = (amount, app.runs.as_ref().len()), store = app.store)]
async fn fingerprinted(app: &App, id: u8, amount: u32) -> Run {
    app.run()
}

/// Lets a fingerprint contain a method call.
trait Len {
    fn len(&self) -> usize;
}

impl Len for AtomicUsize {
    fn len(&self) -> usize {
        8
    }
}

#[tokio::test]
async fn another_fingerprint_under_the_same_key_is_a_mismatch() {
    let app = App::default();
    assert_eq!(ran(fingerprinted(&app, 1, 5).await).0, 1);
    assert_eq!(ran(fingerprinted(&app, 1, 5).await).0, 1);
    assert_eq!(fingerprinted(&app, 1, 6).await.unwrap_err().kind(), "mismatch");
}

#[idempotent(key = "{id}", terminal = Failure::is_final, store = app.store)]
async fn fails(app: &App, id: u8, failure: Failure) -> Run {
    app.run()?;
    Err(failure)
}

#[idempotent(key = "{id}", terminal = |failure| matches!(failure, Failure::Final), store = app.store)]
async fn fails_by_closure(app: &App, id: u8) -> Run {
    app.run()?;
    Err(Failure::Final)
}

#[tokio::test]
async fn a_terminal_error_is_replayed_and_another_is_not() {
    let app = App::default();
    for _ in 0..2 {
        assert!(fails(&app, 1, Failure::Final).await.unwrap_err().is_final());
        assert!(fails_by_closure(&app, 1).await.unwrap_err().is_final());
    }
    assert_eq!(app.runs.load(Ordering::SeqCst), 2);
    for _ in 0..2 {
        assert!(!fails(&app, 2, Failure::Transient).await.unwrap_err().is_final());
    }
    assert_eq!(app.runs.load(Ordering::SeqCst), 4);
}

#[idempotent(key = "{id}", max_attempts = 2, store = app.store)]
async fn limited(app: &App, id: u8) -> Run {
    app.run()?;
    Err(Failure::Transient)
}

#[tokio::test]
async fn a_body_is_not_started_more_often_than_max_attempts() {
    let app = App::default();
    for _ in 0..2 {
        assert_eq!(limited(&app, 1).await.unwrap_err().kind(), "body");
    }
    assert_eq!(limited(&app, 1).await.unwrap_err().kind(), "exhausted");
    assert_eq!(app.runs.load(Ordering::SeqCst), 2);
}

const LEASE: Duration = Duration::from_secs(20);

#[idempotent(key = "{id}", lease = LEASE, wait = "1m 30s", on_crash = "in_doubt", store = app.store)]
async fn slow(app: &App, id: u8) -> Run {
    tokio::time::sleep(Duration::from_secs(60)).await;
    app.run()
}

#[idempotent(key = "{id}", ttl = "2s", on_crash = "rerun", fail_open, store = app.store)]
async fn refused_at_once(app: &App, id: u8) -> Run {
    tokio::time::sleep(Duration::from_secs(60)).await;
    app.run()
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_waits_with_wait_and_is_refused_without() {
    let app = App::default();
    let (first, second) = tokio::join!(slow(&app, 1), slow(&app, 1));
    assert_eq!((ran(first).0, ran(second).0), (1, 1));
    let (first, second) = tokio::join!(refused_at_once(&app, 1), refused_at_once(&app, 1));
    assert_eq!(ran(first).0, 2);
    assert_eq!(second.unwrap_err().kind(), "in_flight");
}

#[tokio::test(start_paused = true)]
async fn the_ttl_is_how_long_a_result_is_kept() {
    let app = App::default();
    assert_eq!(ran(refused_at_once(&app, 1).await).0, 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ran(refused_at_once(&app, 1).await).0, 1);
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(ran(refused_at_once(&app, 1).await).0, 2);
}

/// Says whether it was dropped.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicBool>);

impl Dropped {
    fn get(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

struct Guard(Dropped);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::SeqCst);
    }
}

struct Job {
    id: u8,
    _guard: Guard,
}

#[idempotent(key = "{id}", store = app.store, detach)]
async fn detached_with_guards(app: Arc<App>, id: u8, _guard: Guard, job: Job) -> Run {
    tokio::time::sleep(Duration::from_secs(u64::from(job.id))).await;
    app.run()
}

#[tokio::test(start_paused = true)]
async fn a_detached_body_keeps_its_arguments_until_it_ends() {
    let app = Arc::new(App::default());
    let dropped = [Dropped::default(), Dropped::default()];
    let [guard, in_job] = dropped.clone().map(Guard);
    let call = detached_with_guards(app.clone(), 1, guard, Job { id: 1, _guard: in_job });
    assert!(tokio::time::timeout(Duration::from_millis(10), call).await.is_err());
    assert_eq!(dropped.each_ref().map(Dropped::get), [false, false]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(app.runs.load(Ordering::SeqCst), 1);
    assert_eq!(dropped.each_ref().map(Dropped::get), [true, true]);
}
