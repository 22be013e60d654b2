//! Tests of what `recover` gets. The simulation tests when it is called, and what its answer means.

use crate::support;

use std::pin::pin;
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::{Either, select};
use idem::{MemoryStore, Recovery, idempotent};
use support::{Failure, LEASE, Runs, operation};
use tokio::sync::Notify;
use tokio::time::{advance, timeout};

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

struct Order {
    id: u64,
    note: String,
}

#[derive(Default)]
struct Shop {
    store: MemoryStore,
    asked: Mutex<Vec<String>>,
    runs: Runs,
}

impl Shop {
    #[idempotent(key = "{order.id}", scope = "shop.charge", recover = Self::find, store = self.store)]
    async fn charge(&self, order: Order, amount: u32) -> Result<usize, Failure> {
        self.runs.run();
        drop(order);
        if amount == 0 { std::future::pending().await } else { Ok(1) }
    }

    async fn find(&self, recovery: &Recovery, order: &Order, amount: &u32) -> Result<Option<usize>, Failure> {
        let text = format!("{} {} {amount} {}", order.id, order.note, recovery.attempt());
        self.asked.lock().unwrap().push(text);
        Ok((*amount == 2).then_some(20))
    }
}

#[tokio::test(start_paused = true)]
async fn the_attributes_function_is_given_the_arguments_by_reference_in_their_order() {
    let shop = Shop::default();
    let order = || Order { id: 7, note: "by noon".into() };
    assert!(timeout(Duration::from_secs(1), shop.charge(order(), 0)).await.is_err());
    advance(Duration::from_millis(1)).await;
    for amount in [2, 3] {
        assert_eq!(shop.charge(order(), amount).await.unwrap(), 20);
    }
    assert_eq!((shop.asked.lock().unwrap().concat().as_str(), shop.runs.count()), ("7 by noon 2 2", 1));
}
