//! The arms in the memory of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cached::macros::cached;
use idem::MemoryStore;

use crate::arm::{Arm, Contest, RECEIPT, call, none, ours, wrong};
use crate::idempotent;

#[cached(ttl_secs = 3600, key = "String", convert = r#"{ key.to_owned() }"#)]
async fn by_cached(key: &str) -> String {
    let _ = key;
    RECEIPT.to_owned()
}

/// The work that a table behind a lock needs at least: one write to claim, one write to record, one read.
fn table() -> Arm {
    let table: Arc<Mutex<HashMap<String, Option<String>>>> = Arc::default();
    let fresh = {
        let table = table.clone();
        call(move |key| {
            let table = table.clone();
            async move {
                let lock = || table.lock().unwrap_or_else(PoisonError::into_inner);
                if lock().insert(key.clone(), None).is_some() {
                    return Err(wrong());
                }
                lock().insert(key, Some(RECEIPT.to_owned()));
                Ok(())
            }
        })
    };
    let replay = call(move |key| {
        let found = table.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        async move { if found.flatten().is_some() { Ok(()) } else { Err(wrong()) } }
    });
    Arm { name: "a table behind a lock", fresh, replay, work: None }
}

pub(crate) fn contest() -> Contest {
    let cached =
        || call(|key| async move { if by_cached(&key).await == RECEIPT { Ok(()) } else { Err(wrong()) } });
    let mut arms = vec![table()];
    arms.extend(ours(&MemoryStore::new()));
    arms.push(idempotent::arm(::idempotent::store::memory::MemoryStore::new(1_024, Duration::from_secs(60))));
    // It claims nothing, so concurrent calls all run.
    arms.push(Arm { name: "crate `cached` 4.1", fresh: cached(), replay: cached(), work: None });
    arms.push(none());
    Contest { store: "memory".to_owned(), arms, metered: Vec::new(), server: None }
}
