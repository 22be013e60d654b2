//! Handlers whose writes are committed together with the record of their response.
//!
//! Owns the store of a layer whose handlers run in transactions. This store keeps each claim in a transaction
//! of the user's pool: a claim begins the transaction, a result commits it, and a release rolls it back. So
//! the engine needs no rule for these transactions. Knows no database, because the crate of each store
//! implements `TransactionPool` for its drivers.

use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::Extensions;
use scopeguard::guard;
use tokio::sync::{OwnedMappedMutexGuard, OwnedMutexGuard};

use idem_core::protocol::{
    self, Answer, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Owner, Record, ReleaseAnswer,
    RenewAnswer, Request, Verdict,
};
use idem_core::transaction::{RecordsIn, Taken, Taking, TransactionPool};
use idem_core::{RecordKey, Scope, Store, StoreError, Waiters};
use idem_runtime::{Context, Error};

/// Puts the transaction of a call into the extensions of the handler's request.
pub(super) type Attach = Arc<dyn Fn(&Context, &mut Extensions) + Send + Sync>;

/// The transaction of a request, for its handler. What the handler writes in it is committed with the
/// response, or not at all. With axum it is an extractor; elsewhere see [`Tx::of`].
///
/// `T` is the transaction's type: `sqlx::PgTransaction<'static>`, `sqlx::MySqlTransaction<'static>`, or the
/// [`Transaction`](TransactionPool::Transaction) of another pool. See
/// [`IdempotencyLayer::in_transaction`](super::IdempotencyLayer::in_transaction).
///
/// # Errors
///
/// The answer is 500 `misconfigured` if the request has no transaction of this type, or if the handler has
/// already taken the transaction.
pub struct Tx<T>(OwnedMappedMutexGuard<Option<T>, T>);

/// Holds the transaction of a call. The slot is locked while the handler has the transaction. When the call
/// ends, the transaction is taken out of the slot. If the handler still has the transaction at that time, the
/// transaction stays in the slot, and is rolled back when the last reference to the slot is dropped.
type Slot<T> = Arc<tokio::sync::Mutex<Option<T>>>;

/// Takes the transaction out of the slot. `None` if the handler still has the transaction.
fn take<T>(slot: &Slot<T>) -> Option<T> {
    slot.try_lock().ok()?.take()
}

impl<T: Send + 'static> Tx<T> {
    /// The transaction of the request with these extensions.
    ///
    /// # Errors
    ///
    /// [`Error::Configuration`] if the request has no transaction of this type, or its handler has already
    /// taken the transaction.
    pub fn of(extensions: &Extensions) -> Result<Self, Error> {
        let refuse = |detail| Error::configuration("idem::http", detail);
        let slot = extensions.get::<Slot<T>>().cloned().ok_or_else(|| {
            refuse(
                "the request has no transaction of this type: `IdempotencyLayer::in_transaction` begins it",
            )
        })?;
        let locked = slot.try_lock_owned().ok();
        let taken = locked.and_then(|slot| OwnedMutexGuard::try_map(slot, Option::as_mut).ok());
        taken.map(Self).ok_or_else(|| refuse("the handler has taken its transaction before"))
    }
}

impl<T> Deref for Tx<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Tx<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> fmt::Debug for Tx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tx")
    }
}

/// The store of a layer that [`in_transaction`](super::IdempotencyLayer::in_transaction) made: the store
/// `St`, which writes in transactions of the pool `P`.
pub struct Transactional<St, P: TransactionPool<St>> {
    store: St,
    pool: P,
    running: Arc<Mutex<Calls<P::Transaction>>>,
}

type Call<T> = Arc<Running<T>>;
type Calls<T> = HashMap<RecordKey, Call<T>>;

/// A call that runs in this process, and its transaction.
struct Running<T> {
    claim: Claim,
    taken: Taken,
    slot: Slot<T>,
}

impl<St, P> Transactional<St, P>
where
    P: TransactionPool<St>,
    St: RecordsIn<P::Connection>,
{
    pub(super) fn new(store: St, pool: P) -> Self {
        Self { store, pool, running: Arc::default() }
    }

    pub(super) fn attach(&self, call: &Context, extensions: &mut Extensions) {
        let Ok(scope) = Scope::new(call.operation().to_owned()) else { return };
        if let Some(running) = self.running().get(&RecordKey::new(scope, call.key().clone())) {
            extensions.insert(running.slot.clone());
        }
    }

    fn running(&self) -> MutexGuard<'_, Calls<P::Transaction>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a transaction for a key that is free, and claims the key in the transaction. Does not begin a
    /// transaction for a duplicate in this process or for a replay.
    async fn begin(&self, key: &RecordKey, claim: Claim) -> Result<ClaimAnswer, StoreError> {
        if let Some(call) = self.running().get(key) {
            // Answers as for a record in flight. `now` is the time at which the running call claimed the key.
            // So the lease never counts as expired while the transaction of that call is open.
            let (record, now) = (Some(&call.taken.new), call.taken.at);
            return Ok(protocol::claim(record, Fence::default(), &claim, now).answer);
        }
        if let Some(record) = self.store.get(key).await?
            && let Some(answer) = protocol::recorded_answer(&record, &claim)
        {
            return Ok(answer);
        }
        match self.taken(key, &claim).await? {
            Ok((transaction, taken)) => {
                let (grant, slot) = (taken.grant, Arc::new(tokio::sync::Mutex::new(Some(transaction))));
                self.running().insert(key.clone(), Arc::new(Running { claim, taken, slot }));
                Ok(ClaimAnswer::Granted(grant))
            }
            Err(answer) => Ok(answer),
        }
    }

    /// A transaction that has claimed the key, or the answer to the claim if the key is not free.
    async fn taken(
        &self,
        key: &RecordKey,
        claim: &Claim,
    ) -> Result<Result<(P::Transaction, Taken), ClaimAnswer>, StoreError> {
        self.store.announce().await?;
        let pool = self.pool.clone();
        // `begin` runs in a separate task, so that `begin` is not dropped if the caller drops this future. If
        // sqlx's `begin` is dropped, sqlx may return a connection with an open transaction to the pool.
        let begun = tokio::spawn(async move { pool.begin().await }).await;
        let mut transaction = begun.map_err(|_| StoreError::unavailable("no transaction was begun"))??;
        match self.store.take(P::connection(&mut transaction), key, claim).await? {
            Taking::Taken(taken) => Ok(Ok((transaction, *taken))),
            Taking::Refused(answer) => {
                P::roll_back(transaction).await;
                Ok(Err(answer))
            }
        }
    }

    /// The running call of this owner, which is about to end. The key stays in flight in this process until
    /// the returned guard is dropped.
    fn ending(
        &self,
        key: &RecordKey,
        owner: Owner,
    ) -> Option<impl Deref<Target = Call<P::Transaction>> + Send> {
        let call = self.running().get(key).filter(|call| call.claim.owner == owner).cloned()?;
        Some(guard(call, move |call| {
            let mut running = self.running();
            // After a rollback, another call may already have the key.
            if running.get(key).is_some_and(|other| Arc::ptr_eq(other, &call)) {
                running.remove(key);
            }
        }))
    }

    /// Records the result in the call's transaction and commits it.
    async fn end(&self, key: &RecordKey, request: Complete) -> Result<CompleteAnswer, StoreError> {
        let owner = request.owner;
        let Some(ending) = self.ending(key, owner) else { return self.look(key, owner).await };
        match self.commit(key, &ending, request).await {
            Ok(answer) => Ok(answer),
            // The commit may have succeeded although its answer was lost.
            Err(error) => match self.look(key, owner).await {
                Ok(CompleteAnswer::Done) => Ok(CompleteAnswer::Done),
                // Not reported as an outage, because the engine would retry after an outage, and the
                // transaction is gone.
                _ => Err(StoreError::configuration(format!(
                    "the commit failed, or its answer was lost: {error}"
                ))),
            },
        }
    }

    async fn commit(
        &self,
        key: &RecordKey,
        call: &Running<P::Transaction>,
        mut request: Complete,
    ) -> Result<CompleteAnswer, StoreError> {
        let held =
            || StoreError::configuration("something the handler left behind still has its transaction");
        let mut transaction = take(&call.slot).ok_or_else(held)?;
        let again;
        let mut taken = &call.taken;
        // A `ttl` of zero means that the record is to be forgotten. Then the handler's writes must not stay
        // either.
        if request.verdict == Verdict::Failed || request.ttl.is_zero() {
            // Undoes the handler's writes. Only the record is written, in a second transaction.
            P::roll_back(transaction).await;
            (transaction, again) = match self.taken(key, &call.claim).await? {
                Ok(taken) => taken,
                Err(_) => return Ok(CompleteAnswer::Lost),
            };
            taken = &again;
            request.fence = taken.grant.fence;
        }
        let recorded = self.store.record(P::connection(&mut transaction), key, taken, &request).await;
        match recorded {
            Ok(CompleteAnswer::Done) => P::commit(transaction).await.map(|()| CompleteAnswer::Done),
            not_recorded => {
                P::roll_back(transaction).await;
                not_recorded
            }
        }
    }

    /// Asks the store whether a result of this owner is committed.
    async fn look(&self, key: &RecordKey, owner: Owner) -> Result<CompleteAnswer, StoreError> {
        let record = self.store.get(key).await?;
        let is_own = record.is_some_and(|record| record.owner == owner && record.result.is_some());
        Ok(if is_own { CompleteAnswer::Done } else { CompleteAnswer::Lost })
    }

    async fn roll_back(&self, key: &RecordKey, owner: Owner) {
        let Some(ending) = self.ending(key, owner) else { return };
        if let Some(transaction) = take(&ending.slot) {
            P::roll_back(transaction).await;
        }
    }
}

impl<St, P> Store for Transactional<St, P>
where
    P: TransactionPool<St>,
    St: RecordsIn<P::Connection>,
{
    async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answer, StoreError> {
        match request {
            Request::Claim(claim) => Box::pin(self.begin(key, claim)).await.map(Answer::Claim),
            Request::Complete(request) => Box::pin(self.end(key, request)).await.map(Answer::Complete),
            Request::Release(release) => {
                Box::pin(self.roll_back(key, release.owner)).await;
                Ok(Answer::Release(ReleaseAnswer::Released))
            }
            Request::Renew(renew) => {
                let is_held = self.running().get(key).is_some_and(|call| call.claim.owner == renew.owner);
                Ok(Answer::Renew(if is_held { RenewAnswer::Held } else { RenewAnswer::Lost }))
            }
            Request::RecordStep(_) => Err(StoreError::configuration(
                "a handler in a transaction has no steps: it runs whole or not at all",
            )),
            other => Box::pin(self.store.apply(key, other)).await,
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.store.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.store.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.store.purge(limit).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.store.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.store.waiters()
    }
}

impl<St: Clone, P: TransactionPool<St>> Clone for Transactional<St, P> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), pool: self.pool.clone(), running: self.running.clone() }
    }
}

impl<St, P: TransactionPool<St>> fmt::Debug for Transactional<St, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transactional")
    }
}
