//! Tests of `recover`: what it is given. When it is called, and what its answer means, is the simulation's.

use crate::support;

use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{Either, select};
use idem::protocol::State;
use idem::{MemoryStore, OnCrash, Recovery, Store, idempotent};
use support::{Failure, LEASE, Runs, crashed_worker, operation, record_key};
use tokio::sync::Notify;
use tokio::time::{advance, timeout};

async fn state<S: Store>(store: &S) -> Option<State> {
    store.get(&record_key("k")).await.unwrap().map(|record| record.state)
}

/// A key whose worker died.
async fn crashed() -> MemoryStore {
    let store = MemoryStore::new();
    crashed_worker(&store, "k", OnCrash::Rerun).await;
    advance(LEASE).await;
    store
}

#[tokio::test(start_paused = true)]
async fn it_is_given_the_attempt_and_the_recorded_steps_and_keeps_the_lease() {
    let (store, point, runs) = (MemoryStore::new(), Notify::new(), Runs::default());
    let mut dying = Box::pin(operation().run(&store, "k", || async {
        idem::step("reserve", || async { Ok::<_, Failure>(7) }).await?;
        idem::step(("line", 0), || async { Ok::<_, Failure>("parcel".to_owned()) }).await?;
        point.notify_one();
        std::future::pending::<Result<usize, Failure>>().await
    }));
    assert!(matches!(select(dying.as_mut(), pin!(point.notified())).await, Either::Right(_)));
    std::mem::forget(dying);
    advance(LEASE).await;

    let operation = operation().recover(|recovery: Recovery| async move {
        assert_eq!(
            (recovery.attempt(), recovery.steps().collect::<Vec<_>>()),
            (2, vec!["reserve", "line[0]"])
        );
        assert_eq!(recovery.step::<usize>("reserve").unwrap(), Some(7));
        assert_eq!(recovery.step::<String>(("line", 0)).unwrap().as_deref(), Some("parcel"));
        assert_eq!(recovery.step::<String>("ship").unwrap(), None);
        assert_eq!(recovery.step::<String>("reserve").unwrap_err().kind(), "step_undecodable");
        let context = idem::context().unwrap();
        assert_eq!((Some(recovery.fence()), context.recovered()), (context.fence(), true));
        assert_eq!(recovery.downstream_key("gateway"), context.downstream_key("gateway"));
        assert!(!format!("{recovery:?}").contains("parcel"));
        let step = idem::step("mine", || async { Ok::<usize, Failure>(0) }).await;
        assert_eq!(step.unwrap_err().kind(), "step_nested");
        tokio::time::sleep(LEASE * 3).await;
        Ok(None)
    });
    let call = operation.run(&store, "k", || async {
        let again = idem::step("reserve", || async { Ok::<_, Failure>(runs.run()) }).await?;
        Ok::<usize, Failure>(
            again + 10 * idem::step("charge", || async { Ok::<_, Failure>(runs.run()) }).await?,
        )
    });
    assert_eq!(call.await.unwrap(), 17);
}

struct Shop {
    store: MemoryStore,
    asked: Mutex<Vec<String>>,
    runs: Runs,
}

struct Order {
    id: u64,
    note: String,
}

impl Shop {
    fn new() -> Self {
        Self { store: MemoryStore::new(), asked: Mutex::default(), runs: Runs::default() }
    }

    fn ask(&self, text: String) {
        self.asked.lock().unwrap().push(text);
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }

    #[idempotent(key = "{order.id}", scope = "shop.charge", recover = Self::find, store = self.store)]
    async fn charge(&self, order: Order, amount: u32) -> Result<usize, Failure> {
        self.runs.run();
        drop(order);
        if amount == 0 { std::future::pending().await } else { Ok(1) }
    }

    async fn find(&self, recovery: &Recovery, order: &Order, amount: &u32) -> Result<Option<usize>, Failure> {
        self.ask(format!("{} {} {amount} {}", order.id, order.note, recovery.attempt()));
        Ok((*amount == 2).then_some(20))
    }
}

#[tokio::test(start_paused = true)]
async fn the_attributes_function_is_given_the_arguments_by_reference_in_their_order() {
    let shop = Shop::new();
    let order = || Order { id: 7, note: "by noon".into() };
    assert!(timeout(Duration::from_secs(1), shop.charge(order(), 0)).await.is_err());
    assert_eq!(shop.asked(), [""; 0]);
    advance(Duration::from_millis(1)).await;
    assert_eq!(shop.charge(order(), 2).await.unwrap(), 20);
    assert_eq!(shop.asked(), ["7 by noon 2 2"]);
    assert_eq!((shop.charge(order(), 3).await.unwrap(), shop.runs.count()), (20, 1));
}

#[idempotent(
    key = "{id}",
    scope = "test.operation",
    store = store,
    missing_key = "run",
    recover = async |_: &Recovery, _: &MemoryStore, id: &Option<&str>| -> Result<Option<usize>, Failure> {
        Err(if id.is_some() { Failure::Transient } else { Failure::Final })
    }
)]
async fn inner(store: &MemoryStore, id: Option<&str>) -> Result<usize, Failure> {
    let _ = (store, id);
    Ok(5)
}

#[tokio::test(start_paused = true)]
async fn a_closure_is_asked_too_and_a_call_without_a_key_asks_nothing() {
    let store = crashed().await;
    assert_eq!(inner(&store, None).await.unwrap(), 5);
    // Also inside the body of another call that has taken over: a call without a key does not ask about that one.
    let outer = crashed().await;
    assert_eq!(operation().run(&outer, "k", || inner(&store, None)).await.unwrap(), 5);
    assert!(matches!(inner(&store, Some("k")).await, Err(Failure::Transient)));
    assert_eq!(state(&store).await, Some(State::InDoubt));
}
