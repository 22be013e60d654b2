//! The contract between the engine and whatever keeps the records.
//!
//! Owns the [`Store`] trait and the stores. A store knows the protocol and its own client; it knows
//! nothing of the engine, of bodies or of results beyond their bytes.

#[cfg(feature = "cache")]
mod cached;
#[cfg(feature = "zstd")]
mod compressed;
#[cfg(feature = "encryption")]
mod digested;
mod dynamic;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "encryption")]
mod encrypted;
#[cfg(any(feature = "redis", feature = "postgres"))]
mod hints;
mod memory;
#[cfg(any(feature = "redis", feature = "postgres", feature = "dynamodb"))]
mod own_runtime;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "redis", feature = "postgres", feature = "dynamodb"))]
pub(crate) mod retry;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "redis", feature = "postgres", feature = "dynamodb"))]
mod step_bytes;
pub(crate) mod transaction;
#[cfg(any(feature = "zstd", feature = "encryption"))]
mod transformed;
mod waiters;
#[cfg(any(feature = "sqlite", feature = "dynamodb"))]
mod words;

use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer,
};

#[cfg(feature = "cache")]
pub use cached::{CacheCounts, Cached, Caching};
#[cfg(feature = "zstd")]
pub use compressed::{Compressed, Compression};
#[cfg(feature = "encryption")]
pub use digested::{DigestedKeys, KeyDigests};
pub use dynamic::DynStore;
#[cfg(feature = "dynamodb")]
pub use dynamodb::{DynamoDbStore, DynamoDbStoreBuilder};
#[cfg(feature = "encryption")]
pub use encrypted::{Encrypted, Encryption, KeyRing, SealError};
pub use memory::MemoryStore;
#[cfg(feature = "postgres")]
pub use postgres::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
pub use redis::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteStore, SqliteStoreBuilder};
#[cfg(any(feature = "zstd", feature = "encryption"))]
pub use transformed::Transformed;
pub use waiters::Waiters;
pub(crate) use waiters::{Place, Seat, Seen};

/// Keeps one [`Record`] a key and carries out the protocol's transitions on it.
///
/// # Writing a store
///
/// Each method but [`purge`](Store::purge) and [`list`](Store::list) is **one atomic step** on one record, judged by the
/// store's own clock, never the caller's: two callers with skewed clocks must get the answers one
/// clock would give. The step itself is written once, as a pure function in
/// [`protocol`](crate::protocol). A store that can hold a lock or a transaction calls it:
///
/// 1. read the record of `key` (or none);
/// 2. call the function with it, the request and the store's now;
/// 3. if [`Step::write`](crate::protocol::Step::write) is `Some`, write that whole record, durably;
/// 4. only then answer [`Step::answer`](crate::protocol::Step::answer).
///
/// A store that must decide on a server restates the function in the server's language; its tests
/// hold it against the original.
///
/// What else a store owes:
///
/// * An acknowledged step survives whatever the store says it survives, and is seen by every later
///   step of any client.
/// * The same request, asked again by the same owner because an answer was lost, finds the truth.
///   The functions see to that, so a store retries a broken connection by itself.
/// * Every method ends within a bounded time, with a [`StoreError`] whose kind is honest:
///   `Unavailable` only if the step was certainly not applied, `OutcomeUnknown` otherwise.
/// * Dropping a returned future may leave the step applied or not, never half.
/// * A record past its `expires_at` is absent whether or not it was deleted yet, and no other is
///   ever deleted but by [`forget`](Store::forget). The fence of a new record exceeds every fence
///   its key ever had: from the clock, or from a floor kept when records are deleted.
/// * Scope, key and the names of steps are any UTF-8, NUL included; a result, a step's too, is any
///   bytes.
/// * The steps of a record are kept in their order, by the thousand, and go when the record goes or gets
///   its result. A store may keep them beside the record, but changes both at once.
/// * No key, fingerprint or result in an error, a log or a `Debug`.
pub trait Store: Clone + Send + Sync + 'static {
    /// Claims a key: see [`protocol::claim`](crate::protocol::claim).
    fn claim(
        &self,
        key: &RecordKey,
        request: &Claim,
    ) -> impl Future<Output = Result<ClaimAnswer, StoreError>> + Send;

    /// Renews a lease: see [`protocol::renew`](crate::protocol::renew).
    fn renew(
        &self,
        key: &RecordKey,
        request: &Renew,
    ) -> impl Future<Output = Result<RenewAnswer, StoreError>> + Send;

    /// Records a step of the body: see [`protocol::record_step`](crate::protocol::record_step).
    ///
    /// A step that the store cannot take, by itself or beside those that are there, is a
    /// [`StoreErrorKind::TooLarge`](crate::StoreErrorKind), and nothing is applied; the engine then
    /// records a tombstone in its place.
    fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> impl Future<Output = Result<RecordStepAnswer, StoreError>> + Send;

    /// Records a result: see [`protocol::complete`](crate::protocol::complete).
    ///
    /// A result that the store cannot take is a [`StoreErrorKind::TooLarge`](crate::StoreErrorKind),
    /// and nothing is applied; the engine then records a tombstone.
    fn complete(
        &self,
        key: &RecordKey,
        request: &Complete,
    ) -> impl Future<Output = Result<CompleteAnswer, StoreError>> + Send;

    /// Gives a claim up: see [`protocol::release`](crate::protocol::release).
    fn release(
        &self,
        key: &RecordKey,
        request: &Release,
    ) -> impl Future<Output = Result<ReleaseAnswer, StoreError>> + Send;

    /// Carries out an operator's word on a key in doubt: see
    /// [`protocol::resolve`](crate::protocol::resolve).
    fn resolve(
        &self,
        key: &RecordKey,
        resolution: &Resolution,
    ) -> impl Future<Output = Result<ResolveAnswer, StoreError>> + Send;

    /// Deletes a record in whatever state it is, and says whether there was one. The next call runs
    /// its body: for operators.
    fn forget(&self, key: &RecordKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The live record of a key.
    fn get(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Deletes at most `limit` records past their `expires_at`, and says how many it deleted.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// One page of what there is, without results: for operators, and for programs that watch.
    ///
    /// Ask again with [`Page::next`] until there is none. A page looks at about `limit` records and gives
    /// those that fit, so it may be empty though more follow. It is no snapshot: a record that is there, and
    /// fits, from the beginning of the walk to its end is given at least once, and others may be given or
    /// not. Records past their end that were not deleted yet may be given too; [`Page::now`] tells them.
    ///
    /// Nothing is changed, and nobody who claims or completes waits for it longer than for one read.
    fn list(&self, request: &List) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Looks at the server: what it is, what of its settings weakens the guarantee, and its clock. For
    /// operators; a store that has nothing to say of itself says nothing.
    fn inspect(&self) -> impl Future<Output = Result<Inspection, StoreError>> + Send {
        std::future::ready(Ok(Inspection::default()))
    }

    /// The largest result this store takes, in bytes; `None` for no limit of its own.
    fn max_result_bytes(&self) -> Option<usize>;

    /// Where the callers of this process meet that wait for a key. A store makes one
    /// [`Waiters::default`] when it is made, and its clones share it.
    fn waiters(&self) -> &Waiters;

    /// This store, with results kept compressed where that makes them smaller: see [`Compressed`]. A
    /// result is at most 16 MiB before it is compressed.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed(self) -> Compressed<Self> {
        self.compressed_up_to(16 << 20)
    }

    /// As [`compressed`](Self::compressed), for results of at most `bytes` before they are compressed. It
    /// bounds the memory that reading a result takes.
    #[cfg(feature = "zstd")]
    #[must_use]
    fn compressed_up_to(self, bytes: usize) -> Compressed<Self> {
        Compressed::new(self, Compression::up_to(bytes))
    }

    /// This store, with recorded results replayed from this process's memory: see [`Cached`]. At most so
    /// many, or as [`Caching`] says.
    #[cfg(feature = "cache")]
    #[must_use]
    fn cached(self, caching: impl Into<Caching>) -> Cached<Self> {
        Cached::new(self, caching.into())
    }

    /// This store, with results kept encrypted by `keys`: see [`Encrypted`].
    #[cfg(feature = "encryption")]
    #[must_use]
    fn encrypted(self, keys: KeyRing) -> Encrypted<Self> {
        Encrypted::new(self, Encryption::with(keys))
    }

    /// This store, with keys and fingerprints that cannot be read in it nor guessed without `secret`, 32
    /// bytes from a cryptographic generator: see [`DigestedKeys`].
    #[cfg(feature = "encryption")]
    #[must_use]
    fn digest_keys(self, secret: &[u8; 32]) -> DigestedKeys<Self> {
        DigestedKeys::new(self, KeyDigests::under(secret))
    }
}
