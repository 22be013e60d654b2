//! The keys that the handlers of one consumer hold.
//!
//! Owns who waits for whom inside one consumer or batch, so that a duplicate settles as soon as the first is
//! done, and not when a lease is over. It knows no store.

use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use idem_core::RecordKey;

/// The keys that were granted to calls whose handlers have not ended.
#[derive(Default)]
pub(crate) struct HeldKeys {
    keys: Mutex<Vec<RecordKey>>,
    freed: Notify,
}

impl HeldKeys {
    pub(super) fn add(&self, key: RecordKey) {
        self.keys().push(key);
    }

    /// Removes these, and wakes whoever waits for one of them.
    pub(super) fn free(&self, keys: &[RecordKey]) {
        if keys.is_empty() {
            return;
        }
        {
            let mut held = self.keys();
            for key in keys {
                if let Some(place) = held.iter().position(|held| held == key) {
                    held.swap_remove(place);
                }
            }
        }
        self.freed.notify_waiters();
    }

    /// Whether a handler of this consumer holds this key.
    pub(crate) fn holds(&self, key: &RecordKey) -> bool {
        self.keys().contains(key)
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

    fn keys(&self) -> MutexGuard<'_, Vec<RecordKey>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
