//! The store in this process's memory.
//!
//! Runs the protocol's functions under a shard's lock. Uses tokio's clock, so that paused time works in tests.

mod listing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::HashTable;
use slab::Slab;
use tokio::time::Instant;

use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Answer, Fence, Record, Request, State, Timestamp, Transition};
use idem_core::{Store, Waiters};

const SHARDS: usize = 64;

/// How many expired records a write deletes. More than one, so that with a stream of new keys there are never more
/// expired records than live ones.
const SWEEP: usize = 2;

/// Keeps the records in this process's memory: for tests, and for duplicates that can only come from within one
/// process. The records are lost when the process ends.
///
/// Clones share the records. The clock is tokio's, so `tokio::time::pause` and `advance` also apply to leases and
/// expiry. Writes of other records delete expired ones.
///
/// ```
/// # use idem_runtime as idem;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), idem::Error> {
/// use idem::{MemoryStore, Operation};
///
/// let store = MemoryStore::new();
/// let charge = Operation::new("payments.charge");
/// let first = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(1) }).await?;
/// let again = charge.run(&store, "order-42", || async { Ok::<_, idem::Error>(2) }).await?;
/// assert_eq!((first, again), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore(Arc<Inner>);

struct Inner {
    /// When this store's clock started, as an instant and as a date.
    epoch: (Instant, Timestamp),
    hasher: RandomState,
    shards: Vec<Mutex<Shard>>,
    max_result_bytes: Option<usize>,
    waiters: Waiters,
}

#[derive(Default)]
struct Shard {
    slots: Slab<Slot>,
    /// Where each key's slot is, by the hash of the key. The hash is computed once for each operation, and the table
    /// grows without moving records or hashing again.
    index: HashTable<Place>,
    /// When to look at a record again. An entry that is not its record's [`Slot::look_at`] is stale.
    expiry: BinaryHeap<Reverse<Due>>,
    /// The highest fence of all deleted records.
    floor: Fence,
}

struct Slot {
    place: Place,
    key: RecordKey,
    record: Record,
    /// When this record's entry in the heap is due; never later than its expiry.
    look_at: Option<Timestamp>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    hash: u64,
    slot: usize,
}

/// When to look at a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Timestamp,
    place: Place,
}

/// A key and its hash.
#[derive(Clone, Copy)]
struct Hashed<'k>(u64, &'k RecordKey);

impl Shard {
    fn place(&self, Hashed(hash, key): Hashed<'_>) -> Option<Place> {
        let found = self.index.find(hash, |place| {
            place.hash == hash && self.slots.get(place.slot).is_some_and(|slot| slot.key == *key)
        });
        found.copied()
    }

    fn record(&self, place: Option<Place>) -> Option<&Record> {
        Some(&self.slots.get(place?.slot)?.record)
    }

    /// Writes the record of a key. `place` is what [`place`](Self::place) returned for the key.
    fn write(&mut self, key: Hashed<'_>, place: Option<Place>, record: Record, now: Timestamp) {
        let look = first_look(&record, now);
        let slot = match place.and_then(|place| self.slots.get_mut(place.slot)) {
            Some(slot) => {
                slot.record = record;
                slot
            }
            None => {
                let Hashed(hash, key) = key;
                let free = self.slots.vacant_entry();
                let place = Place { hash, slot: free.key() };
                self.index.insert_unique(hash, place, |place| place.hash);
                free.insert(Slot { place, key: key.clone(), record, look_at: None })
            }
        };
        // A later expiry is noticed when the current entry is due; only an earlier expiry needs a new entry.
        if let Some(at) = look.filter(|look| slot.look_at.is_none_or(|at| *look < at)) {
            slot.look_at = Some(at);
            self.expiry.push(Reverse(Due { at, place: slot.place }));
        }
        self.sweep(now, SWEEP);
    }

    fn remove(&mut self, place: Place) {
        if let Ok(entry) = self.index.find_entry(place.hash, |other| *other == place) {
            entry.remove();
        }
        if let Some(slot) = self.slots.try_remove(place.slot) {
            self.floor = self.floor.max(slot.record.fence);
        }
    }

    /// Deletes at most `limit` expired records.
    fn sweep(&mut self, now: Timestamp, limit: usize) -> usize {
        let mut deleted = 0;
        while deleted < limit
            && let Some(Reverse(Due { at, place })) =
                self.expiry.peek().filter(|due| due.0.at <= now).copied()
        {
            self.expiry.pop();
            let found = self.slots.get_mut(place.slot);
            let Some(slot) = found.filter(|slot| slot.place == place && slot.look_at == Some(at)) else {
                continue;
            };
            slot.look_at = slot.record.expires_at;
            match slot.record.expires_at {
                Some(at) if at > now => self.expiry.push(Reverse(Due { at, place })),
                Some(_) => {
                    self.remove(place);
                    deleted += 1;
                }
                None => {}
            }
        }
        deleted
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limit(None)
    }

    /// An empty store that refuses results of more than `bytes` bytes.
    #[must_use]
    pub fn with_max_result_bytes(bytes: usize) -> Self {
        Self::with_limit(Some(bytes))
    }

    fn with_limit(max_result_bytes: Option<usize>) -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(Arc::new(Inner {
            epoch: (Instant::now(), Timestamp::default().after(since_epoch)),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            max_result_bytes,
            waiters: Waiters::default(),
        }))
    }

    /// How many records there are, including expired ones that are not deleted yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| lock(shard).slots.len()).sum()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn now(&self) -> Timestamp {
        let (start, epoch) = self.0.epoch;
        epoch.after(Instant::now().saturating_duration_since(start))
    }

    fn shard<'k>(&self, key: &'k RecordKey) -> (MutexGuard<'_, Shard>, Hashed<'k>) {
        let hash = self.0.hasher.hash_one(key);
        // Bits from the middle, because the table of a shard uses the lowest and the highest bits.
        let index = usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0);
        (lock(&self.0.shards[index]), Hashed(hash, key))
    }
}

/// When to look at a record for the first time. A record in flight that gets its result expires earlier than its
/// `expires_at` says, by the rest of the lease.
fn first_look(record: &Record, now: Timestamp) -> Option<Timestamp> {
    let end = record.expires_at?;
    match record.state {
        State::InFlight => Some(now.after(end.since(record.lease_until))),
        _ => Some(end),
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    /// The clock is read under the lock, so that operations and their times have the same order.
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        if let Some(limit) = self.0.max_result_bytes {
            request.check_size(limit)?;
        }
        let (mut shard, key) = self.shard(key);
        let now = self.now();
        let place = shard.place(key);
        let Transition { write, answer, .. } =
            protocol::apply(shard.record(place), shard.floor, &request, now);
        if let Some(record) = write {
            shard.write(key, place, record, now);
        }
        Ok(answer)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let (mut shard, key) = self.shard(key);
        let now = self.now();
        let place = shard.place(key);
        let live = shard.record(place).is_some_and(|record| protocol::is_live(record, now));
        if let Some(place) = place {
            shard.remove(place);
        }
        Ok(live)
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let (shard, key) = self.shard(key);
        let now = self.now();
        Ok(shard.record(shard.place(key)).filter(|record| protocol::is_live(record, now)).cloned())
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let mut deleted = 0;
        for shard in &self.0.shards {
            let mut shard = lock(shard);
            let now = self.now();
            deleted += shard.sweep(now, limit - deleted);
        }
        Ok(deleted)
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        Ok(listing::list(self, request))
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.0.max_result_bytes
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}
