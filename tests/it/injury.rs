//! Tests of `#[idempotent_test]`: it accepts a correct function and finds each of two mistakes. A test with
//! one call and one duplicate would find neither mistake.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem::testing::{Trial, TrialStore, idempotent_test, injure};
use idem::{Error, idempotent};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    number: usize,
}

/// The downstream service: it charges once for each key.
#[derive(Clone, Default)]
struct Gateway {
    charges: Arc<Mutex<BTreeMap<String, Receipt>>>,
}

impl Gateway {
    async fn charge(&self, key: String) -> Receipt {
        sleep(Duration::from_millis(20)).await;
        let receipt = {
            let mut charges = self.charges.lock().unwrap();
            let number = charges.len() + 1;
            charges.entry(key).or_insert(Receipt { number }).clone()
        };
        sleep(Duration::from_millis(20)).await;
        receipt
    }

    fn charges(&self) -> usize {
        self.charges.lock().unwrap().len()
    }
}

struct Shop {
    store: TrialStore,
    gateway: Gateway,
}

impl Shop {
    fn new(trial: &Trial) -> Self {
        Self { store: trial.store(), gateway: Gateway::default() }
    }
}

fn derived_key() -> String {
    idem::context().map(|context| context.downstream_key("gateway")).unwrap_or_default().to_string()
}

#[idempotent(key = "order/{order}", scope = "injury.charge", store = shop.store)]
async fn charge(shop: &Shop, order: u64) -> Result<Receipt, Error> {
    Ok(shop.gateway.charge(derived_key()).await)
}

#[idempotent_test]
async fn a_function_that_is_right_survives_every_injury(trial: Trial) -> Result<(), String> {
    let shop = Shop::new(&trial);
    let receipt = trial.call(|| charge(&shop, 42)).await;
    assert_eq!(receipt, Receipt { number: 1 });
    if shop.gateway.charges() == 1 { Ok(()) } else { Err("charged twice".into()) }
}

/// Mistake 1: after each charge, the function makes another key for the downstream service.
#[idempotent(key = "order/{order}", scope = "injury.forgets_the_key", store = shop.store)]
async fn forgets_the_key(shop: &Shop, order: u64) -> Result<Receipt, Error> {
    let key = format!("charge-{}", shop.gateway.charges());
    Ok(shop.gateway.charge(key).await)
}

#[test]
fn a_derived_key_that_is_forgotten_is_found() {
    let report = injure("forgets the key", async |trial: Trial| {
        let shop = Shop::new(&trial);
        trial.call(|| forgets_the_key(&shop, 42)).await;
        assert_eq!(shop.gateway.charges(), 1);
    });
    let broken = report.broken();
    assert!(broken.contains(&"crash before at point 4, the store's complete"), "{report}");
    assert!(!broken.iter().any(|at| at.contains("claim")), "{report}");
}

/// Mistake 2: a worker that has lost its lease continues and returns its own receipt.
async fn swallows_lease_lost(shop: &Shop, order: u64) -> Result<Receipt, Error> {
    match charge(shop, order).await {
        Err(Error::LeaseLost { .. }) => Ok(Receipt { number: 0 }),
        other => other,
    }
}

#[test]
fn a_lost_lease_that_is_swallowed_is_found() {
    let report = injure("swallows LeaseLost", async |trial: Trial| {
        let shop = Shop::new(&trial);
        trial.call(|| swallows_lease_lost(&shop, 42)).await;
    });
    let broken = report.broken();
    assert!(!broken.is_empty(), "{report}");
    assert!(broken.iter().all(|at| at.starts_with("lease lost")), "{report}");
}

#[idempotent(key = "order/{order}", scope = "injury.in_doubt", on_crash = "in_doubt", store = shop.store)]
async fn in_doubt(shop: &Shop, order: u64) -> Result<Receipt, Error> {
    Ok(shop.gateway.charge("any".to_owned() + &shop.gateway.charges().to_string()).await)
}

#[idempotent_test]
async fn a_function_whose_errors_are_answers_is_looked_at_by_its_answers(trial: Trial) {
    let shop = Shop::new(&trial);
    let answers = trial.answers(&|| in_doubt(&shop, 42)).await;
    assert!(shop.gateway.charges() <= 1, "{answers:?}");
}
