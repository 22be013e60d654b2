//! Tests of `missing_key`: what a call does if a value in its key is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idem::{Error, MemoryStore, Outcome, idempotent, observe};

#[derive(Clone, Default)]
struct App {
    store: MemoryStore,
    runs: Arc<AtomicUsize>,
}

impl App {
    /// The rendered key, or the error if there is no context.
    fn run(&self) -> Result<String, Error> {
        self.runs.fetch_add(1, Ordering::SeqCst);
        Ok(idem::context().map_or_else(|| "no context".into(), |context| context.key().as_str().to_owned()))
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

struct Order {
    id: u64,
    part: Option<String>,
}

impl Order {
    fn part(&self) -> Option<&str> {
        self.part.as_deref()
    }
}

fn order(part: Option<&str>) -> Order {
    Order { id: 1, part: part.map(str::to_owned) }
}

#[idempotent(key = "{order.id}/{order.part}", missing_key = "reject", store = app.store)]
async fn rejecting(app: &App, order: &Order) -> Result<String, Error> {
    app.run()
}

#[tokio::test]
async fn a_call_without_a_value_is_refused_by_reject() {
    let app = App::default();
    let observed = observe(rejecting(&app, &order(None))).await;
    assert!(matches!(observed.value, Err(Error::MissingKey { .. })));
    assert_eq!((observed.outcome, app.runs()), (None, 0));
    for _ in 0..2 {
        assert_eq!(rejecting(&app, &order(Some("a/b"))).await.unwrap(), "1/a%2Fb");
    }
    assert_eq!(app.runs(), 1);
    assert!(matches!(rejecting(&app, &order(Some(""))).await, Err(Error::MissingKey { .. })));
}

#[idempotent(key = "{order.id}/{order.part()}", missing_key = "run", store = app.store)]
async fn running(app: &App, order: &Order) -> Result<String, Error> {
    let inner = Order { id: 2, part: Some("inner".into()) };
    rejecting(&App::default(), &inner).await?;
    app.run()
}

#[tokio::test]
async fn a_call_without_a_value_runs_plainly_every_time_by_run() {
    let app = App::default();
    for _ in 0..2 {
        let observed = observe(running(&app, &order(None))).await;
        assert_eq!(observed.value.unwrap(), "no context");
        assert_eq!(observed.outcome, Some(Outcome::Unprotected));
    }
    assert_eq!(app.runs(), 2);
}

#[tokio::test]
async fn a_call_with_its_value_is_protected_by_run() {
    let app = App::default();
    for _ in 0..2 {
        assert_eq!(running(&app, &order(Some("a"))).await.unwrap(), "1/a");
    }
    assert_eq!(app.runs(), 1);
    // An empty value is not a missing one: it is there, but it cannot be a key.
    assert!(matches!(running(&app, &order(Some(""))).await, Err(Error::MissingKey { .. })));
}

#[idempotent(key = "{id}", missing_key = "run", detach, store = app.store)]
async fn detached(app: Arc<App>, id: Option<u8>) -> Result<String, Error> {
    tokio::task::yield_now().await;
    app.run()
}

#[tokio::test(start_paused = true)]
async fn a_detached_body_without_a_key_finishes_without_its_caller() {
    let app = Arc::new(App::default());
    let observed = observe(detached(app.clone(), None)).await;
    assert_eq!(observed.value.unwrap(), "no context");
    assert_eq!(observed.outcome, Some(Outcome::Unprotected));
    tokio::select! {
        biased;
        _ = detached(app.clone(), None) => panic!("the body yields once"),
        () = std::future::ready(()) => {}
    }
    while app.runs() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(detached(app.clone(), Some(1)).await.unwrap(), "1");
}

#[idempotent(key = "{id}", scope = "missing.unkeyed", missing_key = "run", store = app.store)]
async fn unkeyed(app: &App, id: Option<u8>) -> Result<String, Error> {
    idem::step("count", || async { app.run() }).await
}

#[idempotent(key = "{id}", scope = "missing.around", store = app.store)]
async fn around(app: &App, id: u8) -> Result<Vec<String>, Error> {
    // If both were recorded under the key of this call, the second step would repeat the first.
    Ok(vec![unkeyed(app, None).await?, unkeyed(app, None).await?, app.run()?])
}

#[tokio::test]
async fn a_call_without_a_value_in_the_body_of_another_has_nothing_of_that_call() {
    let app = App::default();
    assert_eq!(around(&app, 7).await.unwrap(), ["no context", "no context", "7"]);
    assert_eq!(app.runs(), 3);
}
