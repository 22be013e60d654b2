//! Where the callers of one process meet that wait for the same key.
//!
//! Owns the meeting places; what to do there is the engine's business.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as AsyncMutex, Notify, watch};
use tokio::time::Instant;

use idem_core::protocol::{ClaimAnswer, Fingerprint, Replay};
use idem_core::{RecordKey, Store};

const SHARDS: usize = 32;

/// Where the callers of one process meet that wait for a key of one store.
///
/// It lets them share one poll, and lets a result recorded in this process wake them at once. The clones of a
/// store share one, in the place that the store keeps for it.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Shards>);

#[derive(Default)]
struct Shards {
    hasher: RandomState,
    /// How many wait: most results are waited for by nobody.
    seats: AtomicUsize,
    shards: [Mutex<HashMap<RecordKey, Vec<Arc<Place>>>>; SHARDS],
}

/// Tells the stores of a process apart; the clones of one have the same. For as long as one of them is there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreIdentity(*const ());

impl StoreIdentity {
    /// That of a store, if it has a place for its waiters.
    pub(super) fn of(store: &impl Store) -> Option<Self> {
        let waiters = store.waiters().shared(Waiters::default)?;
        Some(Self(Arc::as_ptr(&waiters.0).cast()))
    }
}

/// What the waiters for one key and one fingerprint share.
pub(super) struct Place {
    fingerprint: Option<Fingerprint>,
    /// How many sit here.
    seats: AtomicUsize,
    /// Held by the one that polls.
    pub(super) turn: AsyncMutex<()>,
    /// Rung when something happened to the key in this process.
    pub(super) bell: Notify,
    /// What the one that polls saw last.
    pub(super) seen: watch::Sender<Seen>,
    /// Whether somebody asks the store for all.
    attention: Mutex<Attention>,
}

/// When the store was last asked for those who wait.
struct Attention {
    /// The question under way, if there is one.
    asking_since: Option<Instant>,
    answered: Instant,
}

/// A question to the store, until it is answered or given up.
pub(super) struct Question<'p>(&'p Place);

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut attention = self.0.attention();
        attention.asking_since = None;
        attention.answered = Instant::now();
    }
}

/// What the one that polls saw.
pub(super) enum Seen {
    /// The key was busy when the store was asked, until then if its lease is not renewed; or not due until then.
    Busy { asked: Instant, until: Instant, due: bool },
    /// The key has a result.
    Replay(Replay),
}

impl Place {
    pub(super) fn saw_busy(&self, retry_after: Duration, due: bool) {
        let asked = Instant::now();
        let until = asked.checked_add(retry_after).unwrap_or(asked);
        self.seen.send_if_modified(|seen| {
            if let Seen::Busy { .. } = seen {
                *seen = Seen::Busy { asked, until, due };
            }
            false
        });
    }

    fn attention(&self) -> MutexGuard<'_, Attention> {
        self.attention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the store was asked within `age`, or is being asked and may take `patience` to answer.
    fn is_attended(&self, attention: &Attention, age: Duration, patience: Duration) -> bool {
        attention.answered.elapsed() <= age
            || attention.asking_since.is_some_and(|since| since.elapsed() <= patience)
    }

    /// Begins a question to the store, for the one whose turn it is.
    pub(super) fn ask(&self) -> Question<'_> {
        self.attention().asking_since = Some(Instant::now());
        Question(self)
    }

    /// Begins a question to the store where nobody else asks it: only one of those who find that so may.
    pub(super) fn ask_unless_attended(&self, age: Duration, patience: Duration) -> Option<Question<'_>> {
        let mut attention = self.attention();
        if self.is_attended(&attention, age, patience) {
            return None;
        }
        attention.asking_since = Some(Instant::now());
        drop(attention);
        Some(Question(self))
    }

    /// For how long the key is busy or not due yet, by an answer not older than `age`, or than the question that is under way.
    pub(super) fn busy_for(&self, age: Duration, patience: Duration) -> Option<ClaimAnswer> {
        let attended = self.is_attended(&self.attention(), age, patience);
        match &*self.seen.borrow() {
            Seen::Busy { asked, until, due } if attended || asked.elapsed() <= age => {
                let retry_after = until.saturating_duration_since(Instant::now());
                let answer = if *due {
                    ClaimAnswer::Busy { retry_after }
                } else {
                    ClaimAnswer::RetryAt { retry_after }
                };
                (!retry_after.is_zero()).then_some(answer)
            }
            Seen::Busy { .. } | Seen::Replay(_) => None,
        }
    }
}

impl Waiters {
    /// Those of this store. A store without a place for them has new ones for each caller.
    pub(super) fn of(store: &impl Store) -> Self {
        store.waiters().shared(Self::default).cloned().unwrap_or_default()
    }

    /// Tells those that wait for this key in this store that something happened to it.
    pub(super) fn ring_in(store: &impl Store, key: &RecordKey) {
        if let Some(waiters) = store.waiters().shared(Self::default) {
            waiters.ring(key);
        }
    }

    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, HashMap<RecordKey, Vec<Arc<Place>>>> {
        let index = usize::try_from(self.0.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.0.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins those that wait for this key with this fingerprint.
    pub(super) fn join(&self, key: &RecordKey, fingerprint: Option<Fingerprint>) -> Seat {
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
                    seen: watch::Sender::new(Seen::Busy {
                        asked: Instant::now(),
                        until: Instant::now(),
                        due: true,
                    }),
                    attention: Mutex::new(Attention { asking_since: None, answered: Instant::now() }),
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
    fn ring(&self, key: &RecordKey) {
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

/// One waiter's membership; leaving is dropping it.
pub(super) struct Seat {
    waiters: Waiters,
    key: RecordKey,
    place: Arc<Place>,
}

impl Seat {
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Gives a result to all that wait here. Who joins later meets elsewhere: the result may be of
    /// another generation by then.
    pub(super) fn share(&self, replay: Replay) {
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
