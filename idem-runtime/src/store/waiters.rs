//! Where the callers of one process meet that wait for the same key.
//!
//! Owns the meeting places; what to do there is the engine's business.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::Instant;

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
    /// How many wait: most results are waited for by nobody.
    seats: AtomicUsize,
    shards: [Mutex<HashMap<RecordKey, Vec<Arc<Place>>>>; SHARDS],
}

/// What the waiters for one key and one fingerprint share.
pub(crate) struct Place {
    fingerprint: Option<Fingerprint>,
    /// How many sit here.
    seats: AtomicUsize,
    /// Held by the one that polls.
    pub(crate) turn: AsyncMutex<()>,
    /// Rung when something happened to the key in this process.
    pub(crate) bell: Notify,
    /// What the one that polls saw last.
    pub(crate) seen: watch::Sender<Seen>,
}

/// What the one that polls saw.
pub(crate) enum Seen {
    /// The key was busy when it was asked about, until then if its lease is not renewed.
    Busy { asked: Instant, until: Instant },
    /// The key has a result.
    Replay(Replay),
}

impl Place {
    pub(crate) fn saw_busy(&self, retry_after: Duration) {
        let asked = Instant::now();
        let until = asked.checked_add(retry_after).unwrap_or(asked);
        self.seen.send_if_modified(|seen| {
            if let Seen::Busy { .. } = seen {
                *seen = Seen::Busy { asked, until };
            }
            false
        });
    }

    /// How long the key is busy yet, by an answer not older than `age`.
    pub(crate) fn busy_for(&self, age: Duration) -> Option<Duration> {
        match &*self.seen.borrow() {
            Seen::Busy { asked, until } if asked.elapsed() <= age => {
                Some(until.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
            }
            Seen::Busy { .. } | Seen::Replay(_) => None,
        }
    }
}

impl Waiters {
    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, HashMap<RecordKey, Vec<Arc<Place>>>> {
        let index = usize::try_from(self.0.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.0.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those that wait for this key with this fingerprint.
    pub(crate) fn join(&self, key: &RecordKey, fingerprint: Option<Fingerprint>) -> Seat {
        // Before it asks its store again: whoever records a result after that sees it here.
        self.0.seats.fetch_add(1, Ordering::SeqCst);
        let mut shard = self.shard(key);
        let places = shard.entry(key.clone()).or_default();
        let place = match places.iter().find(|place| place.fingerprint == fingerprint) {
            Some(place) => place.clone(),
            None => {
                let place = Arc::new(Place {
                    fingerprint,
                    seats: AtomicUsize::new(0),
                    turn: AsyncMutex::new(()),
                    bell: Notify::new(),
                    seen: watch::Sender::new(Seen::Busy { asked: Instant::now(), until: Instant::now() }),
                });
                places.push(place.clone());
                place
            }
        };
        place.seats.fetch_add(1, Ordering::Relaxed);
        drop(shard);
        Seat { waiters: self.clone(), key: key.clone(), place }
    }

    /// Takes the places off the list for which `left` holds.
    fn leave(&self, key: &RecordKey, left: impl Fn(&Arc<Place>) -> bool) {
        let mut shard = self.shard(key);
        if let Some(places) = shard.get_mut(key) {
            places.retain(|place| !left(place));
            if places.is_empty() {
                shard.remove(key);
            }
        }
    }

    /// Tells those that wait for this key that something happened to it.
    pub(crate) fn ring(&self, key: &RecordKey) {
        if self.0.seats.load(Ordering::SeqCst) == 0 {
            return;
        }
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
    place: Arc<Place>,
}

impl Seat {
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Gives a result to all that wait here. Who joins later meets elsewhere: the result may be of
    /// another generation by then.
    pub(crate) fn share(&self, replay: Replay) {
        self.waiters.leave(&self.key, |place| Arc::ptr_eq(place, &self.place));
        self.place.seen.send_replace(Seen::Replay(replay));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiters.0.seats.fetch_sub(1, Ordering::SeqCst);
        self.waiters.leave(&self.key, |place| {
            // Counted under the lock that joining takes.
            Arc::ptr_eq(place, &self.place) && place.seats.fetch_sub(1, Ordering::Relaxed) == 1
        });
    }
}
