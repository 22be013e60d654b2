//! The store in this process's memory.
//!
//! Runs the protocol's functions under a shard's lock. Uses tokio's clock, so that paused time works in
//! tests.

mod listing;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use tokio::time::Instant;

use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Answer, Fence, Record, Request, Timestamp, Transition};
use idem_core::{Store, Waiters};

const SHARDS: usize = 64;

/// How many expired records a write deletes at most. In a steady stream of new keys, one record expires for
/// each new key, and each new key causes at least one write. So with two deletions in each write, the number
/// of expired records falls.
const SWEEP: usize = 2;

/// Keeps the records in this process's memory: for tests, and for duplicates that can only come from within
/// one process. The records are lost when the process ends.
///
/// Clones share the records. The clock is tokio's, so `tokio::time::pause` and `advance` also apply to leases
/// and expiry. Each write also deletes some expired records.
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
    /// Seeded at random for each store.
    hasher: DefaultHashBuilder,
    shards: Vec<Mutex<Shard>>,
    max_result_bytes: Option<usize>,
    waiters: Waiters,
}

#[derive(Default)]
struct Shard {
    /// The records. The hash of a key is computed once for each operation, and the table grows without
    /// hashing again.
    slots: HashTable<Slot>,
    /// Each entry says when to look at a record whose key has this hash. If no record with this hash has the
    /// entry's time as [`Slot::look_at`], the entry is stale.
    expiry: BinaryHeap<Reverse<(Timestamp, u64)>>,
    /// The highest fence of all deleted records.
    floor: Fence,
}

struct Slot {
    hash: u64,
    key: RecordKey,
    record: Record,
    /// When this record's entry in the heap is due; never later than the record's expiry.
    look_at: Option<Timestamp>,
}

#[derive(Clone, Copy)]
struct Hashed<'k>(u64, &'k RecordKey);

impl Shard {
    fn record(&self, Hashed(hash, key): Hashed<'_>) -> Option<&Record> {
        Some(&self.slots.find(hash, |slot| slot.key == *key)?.record)
    }

    fn apply(&mut self, Hashed(hash, key): Hashed<'_>, request: &Request, now: Timestamp) -> Answer {
        let entry = self.slots.entry(hash, |slot| slot.key == *key, |slot| slot.hash);
        let old = match &entry {
            Entry::Occupied(slot) => Some(&slot.get().record),
            Entry::Vacant(_) => None,
        };
        let Transition { write, answer, .. } = protocol::apply(old, self.floor, request, now);
        let Some(record) = write else { return answer };
        let end = record.expires_at;
        let slot = match entry {
            Entry::Occupied(slot) => {
                let slot = slot.into_mut();
                slot.record = record;
                slot
            }
            Entry::Vacant(free) => {
                free.insert(Slot { hash, key: key.clone(), record, look_at: None }).into_mut()
            }
        };
        // A later expiry is noticed when the current entry is due; only an earlier expiry needs a new entry.
        if let Some(end) = end.filter(|end| slot.look_at.is_none_or(|at| *end < at)) {
            slot.look_at = Some(end);
            self.expiry.push(Reverse((end, hash)));
        }
        self.sweep(now, SWEEP);
        answer
    }

    fn remove(&mut self, Hashed(hash, key): Hashed<'_>) {
        if let Ok(entry) = self.slots.find_entry(hash, |slot| slot.key == *key) {
            self.floor = self.floor.max(entry.remove().0.record.fence);
        }
    }

    /// Deletes at most `limit` expired records.
    fn sweep(&mut self, now: Timestamp, limit: usize) -> usize {
        let mut deleted = 0;
        while deleted < limit
            && let Some(Reverse((at, hash))) = self.expiry.peek().filter(|due| due.0.0 <= now).copied()
        {
            self.expiry.pop();
            // Two keys with the same hash have an entry each, and each entry finds one of them.
            let due = self.slots.find_entry(hash, |slot| slot.hash == hash && slot.look_at == Some(at));
            let Ok(mut entry) = due else { continue };
            let end = entry.get().record.expires_at;
            match end {
                Some(end) if end <= now => {
                    self.floor = self.floor.max(entry.remove().0.record.fence);
                    deleted += 1;
                }
                later => {
                    entry.get_mut().look_at = later;
                    self.expiry.extend(later.map(|end| Reverse((end, hash))));
                }
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
            hasher: DefaultHashBuilder::default(),
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

    /// Which shard a hash belongs to. Taken from the middle bits, because the table of a shard uses the
    /// lowest and the highest bits.
    fn index(hash: u64) -> usize {
        usize::try_from((hash >> 32) % SHARDS as u64).unwrap_or(0)
    }

    fn shard<'k>(&self, key: &'k RecordKey) -> (MutexGuard<'_, Shard>, Hashed<'k>) {
        let hash = self.0.hasher.hash_one(key);
        (lock(&self.0.shards[Self::index(hash)]), Hashed(hash, key))
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
        Ok(shard.apply(key, &request, now))
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let (mut shard, key) = self.shard(key);
        let now = self.now();
        let live = shard.record(key).is_some_and(|record| protocol::is_live(record, now));
        shard.remove(key);
        Ok(live)
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let (shard, key) = self.shard(key);
        let now = self.now();
        Ok(shard.record(key).filter(|record| protocol::is_live(record, now)).cloned())
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
