//! An example of testing your own function with a crash, a duplicate and a lost lease, without sleeping: a store over
//! `MemoryStore` that fails on purpose, and tokio's paused time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{MemoryStore, Outcome, idempotent, observe};

/// The user's function: it charges, then works for a minute.
struct Shop {
    store: FaultStore<MemoryStore>,
    charges: Arc<AtomicUsize>,
}

#[idempotent(key = "order/{order}", scope = "shop.pay", lease = "30s", store = shop.store)]
async fn pay(shop: &Shop, order: u64) -> Result<usize, idem::Error> {
    let charge = shop.charges.fetch_add(1, Ordering::SeqCst) + 1;
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(charge)
}

impl Shop {
    fn new() -> Self {
        Self { store: FaultStore::new(MemoryStore::new()), charges: Arc::default() }
    }

    /// Runs a worker that dies in the middle of its work, without another request to the store.
    async fn pay_and_crash(&self, order: u64) {
        self.store.always(OperationKind::Release, Fault::FailBefore);
        let crashed = tokio::time::timeout(Duration::from_secs(10), pay(self, order)).await;
        assert!(crashed.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_is_charged_once() {
    let shop = Shop::new();
    assert_eq!(pay(&shop, 1).await.unwrap(), 1);
    let duplicate = observe(pay(&shop, 1)).await;
    assert_eq!(duplicate.value.unwrap(), 1);
    assert!(duplicate.outcome.unwrap().is_replayed());
    assert_eq!(shop.charges.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_order_is_taken_over_when_the_lease_is_over_and_not_before() {
    let shop = Shop::new();
    shop.pay_and_crash(1).await;

    let Err(idem::Error::InFlight { retry_after, .. }) = pay(&shop, 1).await else { panic!("not refused") };
    tokio::time::advance(retry_after).await;

    let again = observe(pay(&shop, 1)).await;
    assert_eq!(again.value.unwrap(), 2);
    assert!(matches!(again.outcome, Some(Outcome::Executed { attempt: 2, recovered: true, .. })));
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_in_an_outage_is_told_and_the_successors_result_is_the_recorded_one() {
    let shop = Shop::new();
    shop.store.always(OperationKind::Renew, Fault::FailBefore);
    let successor = async {
        tokio::time::sleep(Duration::from_secs(31)).await;
        pay(&shop, 1).await
    };
    let (slow, successor) = futures_util::future::join(pay(&shop, 1), successor).await;
    assert!(matches!(slow, Err(idem::Error::LeaseLost { .. })), "{slow:?}");
    assert_eq!(successor.unwrap(), 2);
    assert_eq!(pay(&shop, 1).await.unwrap(), 2);
}
