//! A cache of recorded results in this process's memory, in front of any store.
//!
//! Owns the rule for when a result may be returned from memory, without a request to the store. This module
//! knows results only as bytes, and does not know the time of the store's clock.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use scopeguard::{ScopeGuard, guard};
use tokio::time::Instant;

use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::defaults::LONGEST;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{Answer, Claim, ClaimAnswer, Fingerprint, Record, Replay, Request, Resolution};
use idem_core::{Store, Waiters};

/// How many bytes the cache keeps unless set.
const MAX_BYTES: usize = 64 << 20;

/// How long a cached result is used unless set.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The approximate memory of an entry, without its key and its result.
const ENTRY_BYTES: usize = 256;

const GENERATIONS: usize = 64;

/// What a [`Cached`] store keeps, and for how long.
///
/// ```
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
    /// Keeps at most this many results. Unless set, they have at most 64 MiB together, and each is used for
    /// at most 5 s.
    pub const fn entries(entries: usize) -> Self {
        Self { entries, max_bytes: MAX_BYTES, ask_again_after: ASK_AGAIN_AFTER }
    }

    /// Limits the bytes of all cached results together; 64 MiB unless set. The keys and about 256 bytes for
    /// each result count, too.
    pub const fn max_bytes(mut self, bytes: usize) -> Self {
        self.max_bytes = bytes;
        self
    }

    /// How long a result may be replayed from memory, counted from the claim that got it from the store.
    /// After that time, a claim goes to the store again.
    ///
    /// If another process forgets the key, or the result expires, this process may still replay the result,
    /// but no longer than this time. With zero, every claim goes to the store.
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

/// A store whose recorded results are replayed from this process's memory: the return type of
/// [`StoreExt::cached`](crate::StoreExt::cached). Feature `cache`.
///
/// If the store answers a claim with a recorded result, memory answers later claims of the key with that
/// result for a while ([`Caching::ask_again_after`]). Even within this time, a claim goes to the store
///
/// - if it has a fingerprint, and the claim that got the result had another fingerprint or none;
/// - after [`forget`](Store::forget) through this store or a clone, even if an older answer arrives later.
///
/// A `forget` by another process, and the expiry of a record, take effect with the next claim that goes to
/// the store: after `ask_again_after`, or after the record's `ttl` if the `ttl` is shorter.
///
/// All other requests go to the store. While the store is down, only results in memory are replayed.
///
/// Clones share the cache. Make this the outermost wrapper, so that a replay is not decrypted or decompressed
/// again. Results are then unencrypted in memory, as they are in the program that made them.
#[derive(Clone)]
pub struct Cached<S> {
    inner: S,
    shared: Arc<Shared>,
}

struct Shared {
    entries: Cache<RecordKey, Entry, Weight>,
    hasher: RandomState,
    /// Each counter is for a part of the keys. A counter is incremented when earlier answers of the store
    /// must not be cached any more.
    generations: [Mutex<u64>; GENERATIONS],
    ask_again_after: Duration,
}

#[derive(Clone)]
struct Entry {
    replay: Replay,
    /// The fingerprint of the claim that got this result from the store.
    fingerprint: Option<Fingerprint>,
    until: Instant,
}

#[derive(Clone)]
struct Weight {
    /// The minimum weight of an entry: the cache's maximum weight, divided by its maximum number of entries.
    /// So the cache never has more than this number of entries.
    least: u64,
}

impl Weighter<RecordKey, Entry> for Weight {
    fn weight(&self, key: &RecordKey, entry: &Entry) -> u64 {
        let name = key.scope().as_str().len() + key.key().as_str().len();
        let bytes = ENTRY_BYTES + name + entry.replay.result.size();
        (bytes as u64).max(self.least)
    }
}

/// The cache has one shard. If it had several, each shard would have only a part of `bytes`, and would admit
/// no entry larger than its part.
fn cache(entries: usize, bytes: u64, weight: Weight) -> Cache<RecordKey, Entry, Weight> {
    let options =
        OptionsBuilder::new().shards(1).estimated_items_capacity(entries).weight_capacity(bytes).build();
    match options {
        Ok(options) => {
            Cache::with_options(options, weight, DefaultHashBuilder::default(), DefaultLifecycle::default())
        }
        // Does not happen, because only a missing capacity is an error.
        Err(_) => Cache::with_weighter(entries, bytes, weight),
    }
}

impl Shared {
    fn new(caching: Caching) -> Self {
        let (entries, bytes) = (caching.entries, caching.max_bytes as u64);
        // The cache admits no entry that weighs more than the cache's share for frequently used entries.
        let admitted = bytes - bytes / 32;
        let least = bytes.div_ceil(entries.max(1) as u64).min(admitted).max(1);
        let bytes = if entries == 0 { 0 } else { bytes };
        Self {
            entries: cache(entries, bytes, Weight { least }),
            hasher: RandomState::new(),
            generations: [const { Mutex::new(0) }; GENERATIONS],
            ask_again_after: caching.ask_again_after,
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

    /// Caches an answer that the store gave in `generation`, if this is still the current generation.
    fn keep(&self, key: &RecordKey, entry: Entry, generation: u64) {
        let current = self.generation(key);
        if *current == generation {
            self.entries.insert(key.clone(), entry);
        }
    }

    /// Drops the cached result, and ensures that answers that are still on their way are not cached.
    fn drop_entry(&self, key: &RecordKey) {
        let mut generation = self.generation(key);
        *generation = generation.wrapping_add(1);
        self.entries.remove(key);
    }

    /// Drops the cached result of a key when a `forget` begins. The returned guard drops it again when the
    /// `forget` succeeds, fails or is dropped. So no result from before the deletion stays cached.
    fn forgetting(&self, key: &RecordKey) -> ScopeGuard<(), impl FnOnce(())> {
        self.drop_entry(key);
        guard((), move |()| self.drop_entry(key))
    }

    /// The end of the time in which memory may return this replay. The time begins at `asked`, when the claim
    /// was sent to the store. It lasts for `ask_again_after`, or for the record's `ttl` if the `ttl` is
    /// shorter. If the end is too late for an `Instant`, returns `None`, and the replay is not cached.
    fn until(&self, replay: &Replay, asked: Instant) -> Option<Instant> {
        let kept = replay.expires_at.map_or(LONGEST, |end| end.since(replay.completed_at));
        asked.checked_add(self.ask_again_after.min(kept))
    }
}

/// Counts a claim. `answer` says whether memory answered the claim (`hit`) or the claim went to the store
/// (`miss`).
#[cfg_attr(not(feature = "metrics"), allow(unused_variables))]
fn count(key: &RecordKey, answer: &'static str) {
    #[cfg(feature = "metrics")]
    metrics::counter!(
        "idem_cache_total",
        "operation" => key.scope().as_str().to_owned(),
        "answer" => answer
    )
    .increment(1);
}

impl<S: Store> Cached<S> {
    pub(super) fn new(inner: S, caching: Caching) -> Self {
        Self { inner, shared: Arc::new(Shared::new(caching)) }
    }
}

impl<S: Store> Store for Cached<S> {
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        let Request::Claim(claim) = &request else {
            let forgets = matches!(request, Request::Resolve(Resolution::ForgetSeen(_)));
            let _forgetting = forgets.then(|| self.shared.forgetting(key));
            return self.inner.apply(key, request).await;
        };
        if let Some(replay) = self.shared.find(key, claim) {
            count(key, "hit");
            return Ok(ClaimAnswer::Replay(replay).into());
        }
        count(key, "miss");
        let fingerprint = claim.fingerprint;
        let generation = *self.shared.generation(key);
        let asked = Instant::now();
        let answer = self.inner.apply(key, request).await?;
        match &answer {
            Answer::Claim(ClaimAnswer::Replay(replay)) => {
                if let Some(until) = self.shared.until(replay, asked) {
                    self.shared.keep(key, Entry { replay: replay.clone(), fingerprint, until }, generation);
                }
            }
            // The store has no result for this key any more.
            Answer::Claim(ClaimAnswer::Granted(_)) => self.shared.drop_entry(key),
            _ => {}
        }
        Ok(answer)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let _forgetting = self.shared.forgetting(key);
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
