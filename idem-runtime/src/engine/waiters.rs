//! Lets the callers of one process that wait for the same key share one poll.
//!
//! Owns who waits for which key. `claim/wait.rs` owns what the waiters do.

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

/// All callers of this process that wait for a key of one store.
///
/// Callers that wait for the same key share one poll, and a result recorded in this process wakes them at once. The
/// clones of a store share one `Waiters`, in the field that the store has for it.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Shards>);

#[derive(Default)]
struct Shards {
    hasher: RandomState,
    /// How many callers wait. Most results have no waiters, so `ring` checks this first.
    seats: AtomicUsize,
    shards: [Mutex<HashMap<RecordKey, Vec<Arc<Place>>>>; SHARDS],
}

/// Identifies a store in this process. All clones of a store have the same identity. It is valid as long as one of them
/// exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreIdentity(*const ());

impl StoreIdentity {
    /// The identity of a store, if the store has a field for its waiters.
    pub(super) fn of(store: &impl Store) -> Option<Self> {
        let waiters = store.waiters().shared(Waiters::default)?;
        Some(Self(Arc::as_ptr(&waiters.0).cast()))
    }
}

/// What the waiters for one key and one fingerprint share.
pub(super) struct Place {
    fingerprint: Option<Fingerprint>,
    /// How many waiters are here.
    seats: AtomicUsize,
    /// The waiter that polls holds this lock.
    pub(super) turn: AsyncMutex<()>,
    /// Notified when something happened to the key in this process.
    pub(super) bell: Notify,
    /// The last answer that the polling waiter saw.
    pub(super) seen: watch::Sender<Seen>,
    /// When a waiter last asked the store for all of them.
    attention: Mutex<Attention>,
}

/// When a waiter last asked the store.
struct Attention {
    /// When the request under way began, if there is one.
    asking_since: Option<Instant>,
    answered: Instant,
}

/// A request to the store, until it is answered or dropped.
pub(super) struct Question<'p>(&'p Place);

impl Drop for Question<'_> {
    fn drop(&mut self) {
        let mut attention = self.0.attention();
        attention.asking_since = None;
        attention.answered = Instant::now();
    }
}

/// The answer that the polling waiter saw.
pub(super) enum Seen {
    /// At `asked`, the key was busy or not due. It stays so until `until`, unless the lease is renewed.
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

    /// Whether the store answered within the last `age`, or a request has been under way for at most `patience`.
    fn is_attended(&self, attention: &Attention, age: Duration, patience: Duration) -> bool {
        attention.answered.elapsed() <= age
            || attention.asking_since.is_some_and(|since| since.elapsed() <= patience)
    }

    /// Begins a request to the store, for the waiter that has the turn.
    pub(super) fn ask(&self) -> Question<'_> {
        self.attention().asking_since = Some(Instant::now());
        Question(self)
    }

    /// Begins a request to the store if no other waiter asks; only one of several callers gets it.
    pub(super) fn ask_unless_attended(&self, age: Duration, patience: Duration) -> Option<Question<'_>> {
        let mut attention = self.attention();
        if self.is_attended(&attention, age, patience) {
            return None;
        }
        attention.asking_since = Some(Instant::now());
        drop(attention);
        Some(Question(self))
    }

    /// How long the key is still busy or not due, by the last answer. `None` if that answer is older than `age` and no
    /// request is under way.
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
    /// The waiters of this store. For a store without a field for them, each caller gets a new value.
    pub(super) fn of(store: &impl Store) -> Self {
        store.waiters().shared(Self::default).cloned().unwrap_or_default()
    }

    /// Wakes the callers that wait for this key of this store.
    pub(super) fn ring_in(store: &impl Store, key: &RecordKey) {
        if let Some(waiters) = store.waiters().shared(Self::default) {
            waiters.ring(key);
        }
    }

    fn shard(&self, key: &RecordKey) -> MutexGuard<'_, HashMap<RecordKey, Vec<Arc<Place>>>> {
        let index = usize::try_from(self.0.hasher.hash_one(key) % SHARDS as u64).unwrap_or(0);
        self.0.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the callers that wait for this key with this fingerprint.
    pub(super) fn join(&self, key: &RecordKey, fingerprint: Option<Fingerprint>) -> Seat {
        // Counted before this caller asks the store again, so that a call that records a result after that sees a
        // waiter.
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

    /// Removes the places of this key for which `left` returns `true`.
    fn leave(&self, key: &RecordKey, left: impl Fn(&Arc<Place>) -> bool) {
        let mut shard = self.shard(key);
        if let Some(places) = shard.get_mut(key) {
            places.retain(|place| !left(place));
            if places.is_empty() {
                shard.remove(key);
            }
        }
    }

    /// Wakes the callers that wait for this key.
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

/// One waiter. Dropping it leaves the place.
pub(super) struct Seat {
    waiters: Waiters,
    key: RecordKey,
    place: Arc<Place>,
}

impl Seat {
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Gives a result to all callers that wait here. Later callers get a new place, because the result may be of an
    /// older generation by then.
    pub(super) fn share(&self, replay: Replay) {
        self.waiters.leave(&self.key, |place| Arc::ptr_eq(place, &self.place));
        self.place.seen.send_replace(Seen::Replay(replay));
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.waiters.0.seats.fetch_sub(1, Ordering::SeqCst);
        self.waiters.leave(&self.key, |place| {
            // Counted under the same lock as joining.
            Arc::ptr_eq(place, &self.place) && place.seats.fetch_sub(1, Ordering::Relaxed) == 1
        });
    }
}
