//! The arms in the memory of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem::MemoryStore;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};
use crate::idempotent;

/// A table behind a lock, the baseline with the least work: a fresh call writes twice (claim and result), and
/// a replay reads once.
type Table = Arc<Mutex<HashMap<String, Option<String>>>>;

async fn pay(table: Table, key: String) -> Anything<()> {
    let insert = |value| table.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), value);
    right(insert(None).is_none() && insert(Some(RECEIPT.to_owned())).is_some())
}

async fn look(table: Table, key: String) -> Anything<()> {
    right(table.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned().flatten().is_some())
}

async fn arms(_: String) -> Anything<Vec<Arm>> {
    let table = Table::default();
    let hand = Arm::new("a table behind a lock", &table, pay, look);
    let mut arms = beside(hand, &MemoryStore::new());
    arms.push(idempotent::arm(::idempotent::store::memory::MemoryStore::new(1_024, Duration::from_secs(60))));
    Ok(arms)
}

pub(crate) fn contest() -> Anything<Contest> {
    Ok(Contest::new("memory", String::new(), None, (), arms))
}
