//! Where the callers of one process meet that wait for the same key.
//!
//! Owns the meeting places; what to do there is the engine's business.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, Notify, watch};

use crate::key::RecordKey;
use crate::protocol::{Fingerprint, Replay};

const SHARDS: usize = 32;

/// Where the callers of one process meet that wait for a key of one store.
///
/// It lets them share one poll, and lets a result recorded in this process wake them at once. A
/// store holds one and its clones share it; there is nothing else to do with it.
#[derive(Clone, Default)]
pub struct Waiters(Arc<Shards>);

#[derive(Default)]
struct Shards {
    hasher: RandomState,
    shards: [Mutex<HashMap<RecordKey, Vec<Arc<Place>>>>; SHARDS],
}

/// What the waiters for one key and one fingerprint share.
pub(crate) struct Place {
    fingerprint: Option<Fingerprint>,
    /// Held by the one that polls.
    pub(crate) turn: AsyncMutex<()>,
    /// Rung when something happened to the key in this process.
    pub(crate) bell: Notify,
    /// The result, once the one that polls has seen it.
    pub(crate) replay: watch::Sender<Option<Replay>>,
}

impl Waiters {
    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, HashMap<RecordKey, Vec<Arc<Place>>>> {
        let index = usize::try_from(self.0.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.0.shards[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those that wait for this key with this fingerprint.
    pub(crate) fn join(&self, key: &RecordKey, fingerprint: Option<Fingerprint>) -> Seat {
        let mut shard = self.shard(key);
        let places = shard.entry(key.clone()).or_default();
        let place = match places.iter().find(|place| place.fingerprint == fingerprint) {
            Some(place) => place.clone(),
            None => {
                let place = Arc::new(Place {
                    fingerprint,
                    turn: AsyncMutex::new(()),
                    bell: Notify::new(),
                    replay: watch::Sender::new(None),
                });
                places.push(place.clone());
                place
            }
        };
        drop(shard);
        Seat {
            waiters: self.clone(),
            key: key.clone(),
            place: Some(place),
        }
    }

    /// Tells those that wait for this key that something happened to it.
    pub(crate) fn ring(&self, key: &RecordKey) {
        if let Some(places) = self.shard(key).get(key) {
            for place in places {
                place.bell.notify_one();
            }
        }
    }
}

impl fmt::Debug for Waiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiters")
    }
}

/// One waiter's membership; leaving is dropping it.
pub(crate) struct Seat {
    waiters: Waiters,
    key: RecordKey,
    /// `None` only while it is dropped.
    place: Option<Arc<Place>>,
}

impl Seat {
    pub(crate) fn place(&self) -> Option<&Place> {
        self.place.as_deref()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut shard = self.waiters.shard(&self.key);
        self.place = None;
        if let Some(places) = shard.get_mut(&self.key) {
            places.retain(|place| Arc::strong_count(place) > 1);
            if places.is_empty() {
                shard.remove(&self.key);
            }
        }
    }
}
