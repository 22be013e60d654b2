//! The contract between the engine and whatever keeps the records.
//!
//! Owns the [`Store`] trait. A store knows the protocol and its own client; it knows
//! nothing of the engine, of bodies or of results beyond their bytes.

use crate::Waiters;
use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Resolution, ResolveAnswer,
};

/// Keeps one [`Record`] for each key and applies the protocol's transitions to it.
///
/// # Writing a store
///
/// Each method but [`purge`](Store::purge) and [`list`](Store::list) is **one atomic operation** on one record. It uses
/// the store's own clock, never the caller's: two callers with skewed clocks must get the answers that one clock would
/// give. The operation itself is written once, as a pure function in [`protocol`](crate::protocol). A store that can
/// hold a lock or a transaction calls it:
///
/// 1. read the record of `key` (or none);
/// 2. call the function with it, the request and the store's now;
/// 3. if [`Transition::write`](crate::protocol::Transition::write) is `Some`, write that whole record, durably;
/// 4. only then answer [`Transition::answer`](crate::protocol::Transition::answer).
///
/// A store that must decide on a server restates the function in the server's language; its tests compare it with the
/// original.
///
/// A store must also keep these rules:
///
/// * An acknowledged operation survives the failures that the store's documentation lists, and every later operation of
///   any client sees it.
/// * If an answer is lost and the same owner sends the same request again, it gets the same answer. The functions
///   ensure that, so a store retries on a broken connection by itself.
/// * Every method ends within a bounded time, with a [`StoreError`] whose kind is honest:
///   `Unavailable` only if the operation was certainly not applied, `OutcomeUnknown` otherwise.
/// * Dropping a returned future leaves the operation applied or not, never half.
/// * A record past its `expires_at` is absent, deleted or not. Only [`forget`](Store::forget) deletes any other record.
///   The fence of a new record exceeds every fence its key ever had. The store takes it from its clock, or keeps a
///   floor when it deletes records.
/// * Scope, key and the names of steps are any UTF-8, including NUL; a result, also of a step, is any bytes.
/// * A record keeps thousands of steps, in their order, until it is deleted or gets its result. A store may keep
///   them beside the record, but changes both at once.
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
    /// A step that is too large, alone or together with the recorded ones, is a
    /// [`StoreErrorKind::TooLarge`](crate::StoreErrorKind), and nothing is applied; the engine then
    /// records a tombstone in its place.
    /// A store without this method records no steps: the first step of a body then fails.
    fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> impl Future<Output = Result<RecordStepAnswer, StoreError>> + Send {
        let _ = (key, request);
        std::future::ready(Err(StoreError::configuration(
            "it does not record steps; use a store that does, or a body without `idem::step`",
        )))
    }

    /// Records a result: see [`protocol::complete`](crate::protocol::complete).
    ///
    /// A result that is too large is a [`StoreErrorKind::TooLarge`](crate::StoreErrorKind),
    /// and nothing is applied; the engine then records a tombstone.
    fn complete(
        &self,
        key: &RecordKey,
        request: &Complete,
    ) -> impl Future<Output = Result<CompleteAnswer, StoreError>> + Send;

    /// Releases a claim: see [`protocol::release`](crate::protocol::release).
    fn release(
        &self,
        key: &RecordKey,
        request: &Release,
    ) -> impl Future<Output = Result<ReleaseAnswer, StoreError>> + Send;

    /// Applies an operator's decision on a key in doubt: see
    /// [`protocol::resolve`](crate::protocol::resolve).
    fn resolve(
        &self,
        key: &RecordKey,
        resolution: &Resolution,
    ) -> impl Future<Output = Result<ResolveAnswer, StoreError>> + Send;

    /// Deletes a record in any state and returns whether there was one. For operators: the next call runs
    /// its body.
    fn forget(&self, key: &RecordKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The live record of a key.
    fn get(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Deletes at most `limit` records past their `expires_at` and returns how many it deleted.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// One page of the records, without results: for operators and monitoring.
    ///
    /// Call again with [`Page::next`] until it is `None`. A page reads about `limit` records and returns the matching
    /// ones, so it may be empty although more follow. A walk is not a snapshot: it returns a record that exists and
    /// matches from its beginning to its end at least once, and may return others. It may return expired records that
    /// are not deleted yet; [`Page::now`] tells which.
    ///
    /// It changes nothing, and delays claims and completions by at most one read.
    /// A store without this method cannot be walked.
    fn list(&self, request: &List) -> impl Future<Output = Result<Page, StoreError>> + Send {
        let _ = request;
        std::future::ready(Err(StoreError::configuration("it cannot list its records")))
    }

    /// Examines the server: which one it is, which of its settings weaken the guarantee, and its clock. For
    /// operators. A store without this method reports nothing.
    fn inspect(&self) -> impl Future<Output = Result<Inspection, StoreError>> + Send {
        std::future::ready(Ok(Inspection::default()))
    }

    /// The largest result this store takes, in bytes; `None` for no limit of its own.
    fn max_result_bytes(&self) -> Option<usize> {
        None
    }

    /// What the clones of this store share in this process: a field of the store, made by [`Waiters::default`]. The
    /// engine uses it. A store without this method works, but each caller that waits for a key then polls by itself.
    #[doc(hidden)]
    fn waiters(&self) -> &Waiters {
        Waiters::of_nobody()
    }
}
