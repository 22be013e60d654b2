//! The contract between the engine and a store of its records.
//!
//! Owns the [`Store`] trait. A store knows the protocol and the client library of its server. It does not
//! know the engine or the bodies, and it sees results only as bytes.

use crate::Waiters;
use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    Answer, Claim, ClaimAnswer, Complete, CompleteAnswer, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, Renew, RenewAnswer, Request, Resolution, ResolveAnswer, StoredResult,
};

/// Keeps one [`Record`] for each key and applies the protocol's transitions to it.
///
/// # Writing a store
///
/// A store implements [`apply`](Store::apply), which takes every request of the protocol, and a few methods
/// for operators. Each method that takes a key is **one atomic operation** on one record. The time comes from
/// the store's own clock, not from the caller's, because two callers with skewed clocks must get the answers
/// that one clock would give. (DynamoDB, NATS and buckets have no clock that a condition can use. Their
/// stores use the clocks of the callers, and allow for a declared skew.) The rules are written once, as pure
/// functions in [`protocol`](crate::protocol), and [`protocol::apply`](crate::protocol::apply) combines them.
/// In a store that can hold a lock or a transaction, `apply` has four steps:
///
/// 1. read the record of `key` (or none);
/// 2. call `protocol::apply` with that record, the request and the store's current time;
/// 3. if [`Transition::write`](crate::protocol::Transition::write) is `Some`, write that whole record,
///    durably;
/// 4. only then answer [`Transition::answer`](crate::protocol::Transition::answer).
///
/// If the server itself applies the request, for example in a script, the store restates the functions in the
/// server's language, and the store's tests compare both. [`claim`](Store::claim), [`renew`](Store::renew)
/// and the other methods for one kind of request call `apply`. A store does not override them, because a
/// wrapper calls only the `apply` of the store inside it.
///
/// This is a whole store, in the memory of one process:
///
/// ```
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
/// use std::time::SystemTime;
///
/// use idem_core::protocol::{self, Answer, Fence, Record, Request, Timestamp, Transition};
/// use idem_core::{RecordKey, Store, StoreError};
///
/// #[derive(Clone, Default)]
/// struct MapStore(Arc<Mutex<HashMap<RecordKey, Record>>>);
///
/// impl MapStore {
///     fn lock(&self) -> MutexGuard<'_, HashMap<RecordKey, Record>> {
///         self.0.lock().unwrap_or_else(PoisonError::into_inner)
///     }
/// }
///
/// fn now() -> Timestamp {
///     Timestamp::default().after(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default())
/// }
///
/// impl Store for MapStore {
///     async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
///         request.check_size(1 << 20)?;
///         let mut records = self.lock();
///         let Transition { write, answer, .. } =
///             protocol::apply(records.get(key), Fence::default(), &request, now());
///         if let Some(record) = write {
///             records.insert(key.clone(), record);
///         }
///         Ok(answer)
///     }
///
///     async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
///         Ok(self.lock().get(key).filter(|record| protocol::is_live(record, now())).cloned())
///     }
///
///     async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
///         Ok(self.lock().remove(key).is_some_and(|record| protocol::is_live(&record, now())))
///     }
///
///     async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
///         let (now, mut left) = (now(), limit);
///         self.lock().retain(|_, record| {
///             let stays = left == 0 || protocol::is_live(record, now);
///             left -= usize::from(!stays);
///             stays
///         });
///         Ok(limit - left)
///     }
///
///     fn max_result_bytes(&self) -> Option<usize> {
///         Some(1 << 20)
///     }
/// }
/// # let _ = MapStore::default();
/// ```
///
/// A store must also keep these rules:
///
/// * An acknowledged operation survives the failures that the store's documentation lists, and every later
///   operation of any client sees it.
/// * If an answer is lost, the same owner may send the same request again. If nobody else has changed the
///   record since, the owner gets the same answer; only a release may get `Lost` instead. The protocol's
///   functions ensure this. So if a connection breaks, the store sends the request again by itself.
/// * Every method ends within a bounded time. If it fails, the kind of its [`StoreError`] is honest:
///   `Unavailable` only if the operation was certainly not applied, `OutcomeUnknown` if that is not certain.
/// * Dropping a returned future leaves the operation either applied or not applied, never half applied.
/// * A record past its `expires_at` counts as absent, even before the store deletes it. Only
///   [`forget`](Store::forget) deletes a record before that time. The fence of a new record exceeds every
///   fence that its key ever had. So the store takes the fence from its clock, or keeps the highest fence of
///   the records that it deletes.
/// * A scope, a key and the name of a step can be any UTF-8 text, even with NUL. A result, also that of a
///   step, can be any bytes.
/// * A record can have thousands of steps. It keeps them in their order, until it is deleted or gets a result
///   other than `Exhausted`. A store may keep the steps beside the record, but changes both at once.
/// * No error, log or `Debug` output contains a key, a result or a whole fingerprint.
pub trait Store: Clone + Send + Sync + 'static {
    /// Applies a request to the record of a key, and returns the answer, which is of the same kind as the
    /// request: see [`protocol::apply`](crate::protocol::apply).
    ///
    /// If a result is too large, or a step is too large by itself or together with the recorded steps, the
    /// store returns a [`StoreErrorKind::TooLarge`](crate::StoreErrorKind) and applies nothing. The engine
    /// then sends the request again, with a tombstone instead of the result. If the store does not know the
    /// kind of the request, it returns a [`StoreErrorKind::Configuration`](crate::StoreErrorKind).
    ///
    /// Nothing happens before the future is polled. In every call, the engine puts this future into a box, so
    /// it should be small.
    fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send;

    /// Claims a key: see [`protocol::claim`](crate::protocol::claim).
    fn claim(
        &self,
        key: &RecordKey,
        request: &Claim,
    ) -> impl Future<Output = Result<ClaimAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::Claim(request.clone())).await?.try_into() }
    }

    /// Renews a lease: see [`protocol::renew`](crate::protocol::renew).
    fn renew(
        &self,
        key: &RecordKey,
        request: &Renew,
    ) -> impl Future<Output = Result<RenewAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::Renew(*request)).await?.try_into() }
    }

    /// Records a step of the body: see [`protocol::record_step`](crate::protocol::record_step).
    fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> impl Future<Output = Result<RecordStepAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::RecordStep(request.clone())).await?.try_into() }
    }

    /// Records a result: see [`protocol::complete`](crate::protocol::complete).
    fn complete(
        &self,
        key: &RecordKey,
        request: &Complete,
    ) -> impl Future<Output = Result<CompleteAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::Complete(request.clone())).await?.try_into() }
    }

    /// Releases a claim: see [`protocol::release`](crate::protocol::release).
    fn release(
        &self,
        key: &RecordKey,
        request: &Release,
    ) -> impl Future<Output = Result<ReleaseAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::Release(*request)).await?.try_into() }
    }

    /// Applies an operator's decision: see [`protocol::resolve`](crate::protocol::resolve).
    fn resolve(
        &self,
        key: &RecordKey,
        resolution: &Resolution,
    ) -> impl Future<Output = Result<ResolveAnswer, StoreError>> + Send {
        async move { self.apply(key, Request::Resolve(resolution.clone())).await?.try_into() }
    }

    /// Deletes a record in any state and returns whether there was one. This method is for operators, because
    /// the next call then runs its body.
    fn forget(&self, key: &RecordKey) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// The live record of a key.
    fn get(&self, key: &RecordKey) -> impl Future<Output = Result<Option<Record>, StoreError>> + Send;

    /// Deletes at most `limit` records past their `expires_at` and returns how many it deleted.
    fn purge(&self, limit: usize) -> impl Future<Output = Result<usize, StoreError>> + Send;

    /// One page of the records, without results: for operators and monitoring.
    ///
    /// Call again with [`Page::next`] until it is `None`. A page reads about `limit` records and returns the
    /// matching ones, so a page may be empty although more records follow. Such a walk is not a snapshot. It
    /// returns each record that exists and matches during the whole walk, at least once. It may also return
    /// other records, such as expired records that are not deleted yet: their `expires_at` is not later than
    /// [`Page::now`].
    ///
    /// Listing changes nothing, and delays claims and completions by at most one read. A store without this
    /// method cannot list its records.
    fn list(&self, request: &List) -> impl Future<Output = Result<Page, StoreError>> + Send {
        let _ = request;
        std::future::ready(Err(StoreError::configuration("it cannot list its records")))
    }

    /// Examines the server: its product, its clock, and the settings that weaken the guarantee. This method
    /// is for operators. A store without it reports nothing.
    fn inspect(&self) -> impl Future<Output = Result<Inspection, StoreError>> + Send {
        std::future::ready(Ok(Inspection::default()))
    }

    /// The largest result this store takes, in bytes; `None` if it has no limit.
    fn max_result_bytes(&self) -> Option<usize> {
        None
    }

    /// What the clones of this store share in this process: a field of the store, made by
    /// [`Waiters::default`]. The engine uses it. A store without this method works, but then each caller that
    /// waits for a key reads the record by itself.
    #[doc(hidden)]
    fn waiters(&self) -> &Waiters {
        Waiters::of_nobody()
    }
}

impl Request {
    /// Checks that the result in this request, if there is one, has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// A [`StoreErrorKind::TooLarge`](crate::StoreErrorKind) if it has more.
    pub fn check_size(&self, limit: usize) -> Result<(), StoreError> {
        self.result().map_or(Ok(()), |result| result.check_size(limit))
    }
}

impl StoredResult {
    /// The size in bytes: 0 for a tombstone.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Value(bytes) => bytes.len(),
            Self::Tombstone(_) => 0,
        }
    }

    /// Checks that this result has at most `limit` bytes.
    ///
    /// # Errors
    ///
    /// A [`StoreErrorKind::TooLarge`](crate::StoreErrorKind) if it has more.
    pub fn check_size(&self, limit: usize) -> Result<(), StoreError> {
        if self.size() > limit { Err(StoreError::too_large(self.size(), limit)) } else { Ok(()) }
    }
}
