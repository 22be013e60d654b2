//! Recorded results in this process's memory, in front of any store.
//!
//! Owns when a result may be given without asking the store. It knows results as bytes, and the store's
//! clock as far as the store tells of it.

mod clock;

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use self::clock::StoreClock;
use crate::error::StoreError;
use idem_core::RecordKey;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fingerprint, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Replay, Resolution, ResolveAnswer, StoredResult,
};
use idem_core::{Store, Waiters};

/// How many bytes are kept unless set.
const MAX_BYTES: usize = 64 << 20;

/// How long the store is not asked again unless set.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What an entry takes beside its key and its result, about.
const ENTRY_BYTES: usize = 256;

const GENERATIONS: usize = 64;

/// What a [`Cached`] store keeps, and for how long.
///
/// ```
/// # use idem_runtime as idem;
/// use std::time::Duration;
/// use idem::{Caching, MemoryStore, StoreExt as _};
///
/// let caching = Caching::entries(10_000).max_bytes(16 << 20).ask_again_after(Duration::from_secs(1));
/// let store = MemoryStore::new().cached(caching);
/// # let _ = store;
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Caching {
    entries: usize,
    max_bytes: usize,
    ask_again_after: Duration,
}

impl Caching {
    /// At most so many results; together at most 64 MiB, each for at most 5 s unless set.
    pub const fn entries(entries: usize) -> Self {
        Self { entries, max_bytes: MAX_BYTES, ask_again_after: ASK_AGAIN_AFTER }
    }

    /// At most so many bytes in all, keys and a little for each entry counted.
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How long a result may be given after the store gave it: then the store is asked again.
    ///
    /// It bounds how long a result goes on to be replayed in this process after another one forgot its
    /// key. With zero the store is always asked.
    pub const fn ask_again_after(mut self, time: Duration) -> Self {
        self.ask_again_after = time;
        self
    }
}

impl From<usize> for Caching {
    fn from(entries: usize) -> Self {
        Self::entries(entries)
    }
}

/// How often a [`Cached`] store could answer by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Claims that were answered from memory.
    pub hits: u64,
    /// Claims that the store was asked about; the first call of a key is one.
    pub misses: u64,
    /// How many results are kept now.
    pub entries: usize,
}

/// A store whose recorded results are replayed from this process's memory: what
/// [`StoreExt::cached`](crate::StoreExt::cached) gives. Feature `cache`.
///
/// A claim that the store answered with a recorded result is answered from memory for a while
/// ([`Caching::ask_again_after`]), to callers with the same fingerprint and to those without one. It is
/// never answered so
///
/// - after [`forget`](Store::forget) through this store or a clone: at once, also for answers on their
///   way; after one by another process for as long as the store is not asked again;
/// - after the record's end by the store's clock, which is asked for once a minute: a clock that is set
///   forward in between is noticed when the store is asked again;
/// - with another fingerprint: then the store is asked, and says what it says.
///
/// Everything else goes to the store. While it is down, what is in memory is replayed and nothing else.
///
/// Clones share what they keep. Put it outermost, so that a replay is neither decrypted nor unpacked
/// again: results are plain in memory then, as they are in the program that made them.
#[derive(Clone)]
pub struct Cached<S> {
    inner: S,
    shared: Arc<Shared>,
}

struct Shared {
    entries: Cache<RecordKey, Entry, Weight>,
    hasher: RandomState,
    /// Of some keys each: counted up when what the store answered before must not be kept any more.
    generations: [Mutex<u64>; GENERATIONS],
    clock: StoreClock,
    ask_again_after: Duration,
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Clone)]
struct Entry {
    replay: Replay,
    /// One that the store let pass.
    fingerprint: Option<Fingerprint>,
    until: Instant,
}

#[derive(Clone)]
struct Weight {
    /// So that as many as may be kept weigh as much as may be kept.
    least: u64,
}

impl Weighter<RecordKey, Entry> for Weight {
    fn weight(&self, key: &RecordKey, entry: &Entry) -> u64 {
        let result = match &entry.replay.result {
            StoredResult::Value(bytes) => bytes.len(),
            StoredResult::Tombstone(_) => 0,
        };
        let bytes = ENTRY_BYTES + key.scope().as_str().len() + key.key().as_str().len() + result;
        (bytes as u64).max(self.least)
    }
}

impl Shared {
    fn new(caching: Caching) -> Self {
        let (entries, bytes) = (caching.entries, caching.max_bytes as u64);
        // The cache admits nothing that weighs more than what it keeps for the much used.
        let admitted = bytes - bytes / 32;
        let least = bytes.div_ceil(entries.max(1) as u64).min(admitted).max(1);
        // None is none.
        let bytes = if entries == 0 { 0 } else { bytes };
        Self {
            entries: Cache::with_weighter(entries, bytes, Weight { least }),
            hasher: RandomState::new(),
            generations: [const { Mutex::new(0) }; GENERATIONS],
            clock: StoreClock::default(),
            ask_again_after: caching.ask_again_after,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn generation(&self, key: &RecordKey) -> MutexGuard<'_, u64> {
        let index = usize::try_from(self.hasher.hash_one(key) % GENERATIONS as u64).unwrap_or(0);
        self.generations[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &RecordKey, request: &Claim) -> Option<Replay> {
        let now = Instant::now();
        let entry = self.entries.get(key)?;
        if now >= entry.until {
            self.entries.remove_if(key, |entry| now >= entry.until);
            return None;
        }
        (request.fingerprint.is_none() || request.fingerprint == entry.fingerprint).then_some(entry.replay)
    }

    /// Keeps what the store answered in this generation, if it is the same still.
    fn keep(&self, key: &RecordKey, entry: Entry, generation: u64) {
        let current = self.generation(key);
        if *current == generation {
            self.entries.insert(key.clone(), entry);
        }
    }

    /// Drops what is kept, and sees to it that no answer on its way is.
    fn drop_entry(&self, key: &RecordKey) {
        let mut generation = self.generation(key);
        *generation = generation.wrapping_add(1);
        self.entries.remove(key);
    }

    #[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
    fn count(&self, key: &RecordKey, hit: bool) {
        let counter = if hit { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        #[cfg(feature = "metrics")]
        metrics::counter!(
            "idem_cache_total",
            "operation" => key.scope().as_str().to_owned(),
            "answer" => if hit { "hit" } else { "miss" }
        )
        .increment(1);
    }
}

/// While a key is being forgotten, and once more when that is over, however it ends: whatever was read
/// before the record went is not kept.
struct Forgetting<'a> {
    shared: &'a Shared,
    key: &'a RecordKey,
}

impl<'a> Forgetting<'a> {
    fn begin(shared: &'a Shared, key: &'a RecordKey) -> Self {
        shared.drop_entry(key);
        Self { shared, key }
    }
}

impl Drop for Forgetting<'_> {
    fn drop(&mut self) {
        self.shared.drop_entry(self.key);
    }
}

impl<S: Store> Cached<S> {
    pub(super) fn new(inner: S, caching: Caching) -> Self {
        Self { inner, shared: Arc::new(Shared::new(caching)) }
    }

    /// How often it could answer by itself, since it was made; the clones' answers are counted too.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        CacheCounts {
            hits: self.shared.hits.load(Ordering::Relaxed),
            misses: self.shared.misses.load(Ordering::Relaxed),
            entries: self.shared.entries.len(),
        }
    }

    /// Until when a replay that was asked for then may be given; `None` if not at all.
    async fn until(&self, replay: &Replay, asked: Instant) -> Option<Instant> {
        let trusted = self.shared.ask_again_after;
        if trusted.is_zero() {
            return None;
        }
        let trusted = asked.checked_add(trusted)?;
        let Some(end) = replay.expires_at else { return Some(trusted) };
        let latest = self.shared.clock.latest(&self.inner).await?;
        // By now, as the clock may have been asked for since.
        let left = end.since(latest.now());
        Some(trusted.min(latest.asked_at().checked_add(left).unwrap_or(trusted)))
    }
}

impl<S: Store> Store for Cached<S> {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        if let Some(replay) = self.shared.find(key, request) {
            self.shared.count(key, true);
            return Ok(ClaimAnswer::Replay(replay));
        }
        self.shared.count(key, false);
        let generation = *self.shared.generation(key);
        let asked = Instant::now();
        let answer = self.inner.claim(key, request).await?;
        match &answer {
            ClaimAnswer::Replay(replay) => {
                if let Some(until) = self.until(replay, asked).await {
                    let fingerprint = request.fingerprint;
                    self.shared.keep(key, Entry { replay: replay.clone(), fingerprint, until }, generation);
                }
            }
            // A result that was there is gone.
            ClaimAnswer::Granted(_) => self.shared.drop_entry(key),
            _ => {}
        }
        Ok(answer)
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.inner.renew(key, request).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.inner.record_step(key, request).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.inner.complete(key, request).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.inner.release(key, request).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        let forgets = matches!(resolution, Resolution::ForgetSeen(_));
        let _forgetting = forgets.then(|| Forgetting::begin(&self.shared, key));
        self.inner.resolve(key, resolution).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let _forgetting = Forgetting::begin(&self.shared, key);
        self.inner.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge(limit).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        self.inner.list(request).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        self.inner.inspect().await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.inner.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.inner.waiters()
    }
}

impl<S: fmt::Debug> fmt::Debug for Cached<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cached").field(&self.inner).finish()
    }
}
