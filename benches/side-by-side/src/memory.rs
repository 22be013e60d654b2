//! The arms in the memory of this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem::MemoryStore;

use crate::arm::{Arm, Arms, Contest, RECEIPT, call, none, ours, wrong};
use crate::idempotent;

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

fn arms() -> Vec<Arm> {
    let mut arms = vec![table()];
    arms.extend(ours(&MemoryStore::new()));
    arms.push(idempotent::arm(::idempotent::store::memory::MemoryStore::new(1_024, Duration::from_secs(60))));
    arms.push(none());
    arms
}

pub(crate) fn contest() -> Contest {
    let connect = Box::new(|_| -> Arms { Box::pin(async { Ok(arms()) }) });
    Contest { store: "memory", connect, url: String::new(), port: None, _kept: Box::new(()) }
}
