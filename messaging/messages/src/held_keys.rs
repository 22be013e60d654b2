//! The keys of the calls that the handlers of one consumer or batch make.
//!
//! Owns the waiting inside one consumer or batch: if a duplicate finds its key in flight, its handler runs
//! again as soon as the first message's handler has ended. It does not wait for the end of a lease. This
//! module knows no store.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use idem_core::RecordKey;

/// The keys of calls whose handlers have not ended. A key counts as held before its claim is sent, because
/// the answer to a duplicate's claim may arrive before the answer to the first call's claim.
#[derive(Default)]
pub(crate) struct HeldKeys {
    keys: Mutex<HashMap<RecordKey, Holders>>,
    freed: Notify,
}

/// The handlers that have made a call with a key.
#[derive(Default)]
struct Holders {
    now: usize,
    /// How many handlers have ended while other handlers held the key.
    ended: u64,
}

/// A key that a handler holds, and the value of `Holders::ended` when the handler added the key.
pub(crate) struct Held {
    key: RecordKey,
    ended: u64,
}

impl HeldKeys {
    pub(crate) fn add(&self, key: &RecordKey) -> Held {
        let mut keys = self.keys();
        let holders = keys.entry(key.clone()).or_default();
        holders.now += 1;
        Held { key: key.clone(), ended: holders.ended }
    }

    /// Removes these keys of a handler that has ended, and wakes everyone who waits for a key. Returns
    /// whether another handler with one of these keys ended in the meantime. If so, the store's answer about
    /// that key may be out of date.
    pub(crate) fn free(&self, held: &[Held]) -> bool {
        if held.is_empty() {
            return false;
        }
        let another_ended = {
            let mut keys = self.keys();
            // This check comes before the counts change. Otherwise a handler that made two calls with one key
            // would report its own end as another handler's.
            let is_old = |held: &Held| keys.get(&held.key).is_some_and(|holders| holders.ended != held.ended);
            let another_ended = held.iter().any(is_old);
            for Held { key, .. } in held {
                let Some(holders) = keys.get_mut(key) else { continue };
                holders.now -= 1;
                holders.ended += 1;
                if holders.now == 0 {
                    keys.remove(key);
                }
            }
            another_ended
        };
        self.freed.notify_waiters();
        another_ended
    }

    /// Whether a handler of this consumer has made a call with this key and has not ended.
    pub(crate) fn holds(&self, key: &RecordKey) -> bool {
        self.keys().contains_key(key)
    }

    /// Returns once no handler of this consumer holds this key.
    pub(crate) async fn freed(&self, key: &RecordKey) {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if !self.holds(key) {
                return;
            }
            freed.await;
        }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<RecordKey, Holders>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
