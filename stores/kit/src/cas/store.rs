//! The store: reads, decisions and conditional writes, the declared clock skew, and what a process remembers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_core::inspection::{Inspection, Standing};
use idem_core::listing::{Cursor, List, Listed, Page};
use idem_core::protocol::{
    self, Answer, Fence, Record, Request, Resolution, Seen, State, Timestamp, Transition, is_live,
};
use idem_core::{RecordKey, StoreError, Waiters};

use super::format::{self, MAX_HEAD_BYTES};
use super::{CasSettings, CompareAndSwap, ObjectName, Put, Version};
use crate::columns::Unreadable;
use crate::hints::Hints;
use crate::{own_runtime, retry, step_bytes};

/// How long a fence is kept at least. If it were deleted earlier, a writer whose clock is behind could give a
/// lower fence. A fence is a time: a purge deletes a forgotten record only when its fence is older than this.
/// The service deletes an object by itself only when its last write is older than this, even if the record
/// has expired.
const MEMORY_OF_FENCES: Duration = Duration::from_secs(3_600);

/// Upper limit for the number of records in `CasStore::held`.
const MAX_HELD: usize = 4_096;

/// The largest record in `CasStore::held`, in bytes.
const MAX_HELD_BYTES: usize = 16 * 1_024;

/// How many objects a purge reads at a time.
const PURGED_AT_ONCE: usize = 500;

/// Keeps records in a service with [`CompareAndSwap`]. The macro [`store_by!`](crate::store_by) makes a store
/// from this type.
///
/// Renewals and releases run in the [stores' own thread](crate::own_runtime), and all other requests run in
/// the caller's task. All of them use the timers and connections of that thread.
///
/// The clock of the process that writes a record may be behind the other clocks. So the store adds the clock
/// skew to the end of the lease and to the expiry before it writes them. When any clock reaches the written
/// time, the writer's clock has reached the time that the protocol decided.
pub struct CasStore<C: CompareAndSwap> {
    /// The service.
    pub service: C,
    /// The settings.
    pub settings: CasSettings,
    /// The keys whose result this process has seen.
    results: Hints,
    /// The records that this process wrote for its claims. The next write for such a claim needs no read
    /// first.
    held: Mutex<HashMap<RecordKey, Versioned<C::Revision>>>,
    waiters: Waiters,
}

/// A record with its revision.
type Versioned<R> = (Record, R);

#[doc(hidden)]
impl<C: CompareAndSwap> CasStore<C> {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
    pub fn apply(
        self: &Arc<Self>,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        async move {
            request.check_size(self.room())?;
            let counts_for_others = matches!(request, Request::Renew(_) | Request::Release(_));
            let (store, key) = (self.clone(), key.clone());
            let work = Box::pin(async move { store.request(&key, &request).await });
            if counts_for_others { own_runtime::apart(work).await } else { work.await }
        }
    }

    /// Replaces a record by an expired record that keeps the fence. Returns whether the old record was live.
    pub async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        // If the answer of an earlier try was lost, the object may now have a newer record, which must stay.
        let first = OnceLock::new();
        let forget = |record: Option<&Record>, now| {
            let first = first.get_or_init(|| record.map(|record| (record.created_at, is_live(record, now))));
            let Some((created_at, was_live)) = *first else { return Ok(Transition::new(None, false)) };
            let meant = record.filter(|record| record.created_at == created_at && !is_forgotten(record));
            let write = meant.and_then(|record| {
                let forget = Resolution::ForgetSeen(Seen::of(record));
                // The decision uses the epoch as its time. At that time every record is live, so an expired
                // record is emptied too.
                protocol::resolve(Some(record), &forget, Timestamp::default()).write
            });
            Ok(Transition::new(write, was_live))
        };
        self.change(key, None, &forget).await
    }

    pub async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let stored = self.retried(|| self.look(key)).await?;
        Ok(stored.map(|(record, _)| record).filter(|record| is_live(record, now())))
    }

    pub async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut deleted, mut after) = (0, None::<Vec<u8>>);
        loop {
            let page = self.retried(|| self.service.list(None, after.as_deref(), PURGED_AT_ONCE)).await?;
            for Version { bytes, revision } in page.versions {
                if deleted >= limit {
                    return Ok(deleted);
                }
                let Ok((key, record)) = format::decode(&bytes) else { continue };
                let name = ObjectName::of(&key);
                if self.is_over(&record) && self.retried(|| self.service.delete(&name, &revision)).await? {
                    // `forget` has already emptied a forgotten record, so its deletion does not count.
                    deleted += usize::from(!is_forgotten(&record));
                }
            }
            let Some(next) = page.next else { return Ok(deleted) };
            after = Some(next);
        }
    }

    pub async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let scope = request.scope.as_ref().map(|scope| format::part(scope.as_str()));
        let after = request.after.as_ref().map(Cursor::as_bytes);
        let listing =
            self.retried(|| self.service.list(scope.as_deref(), after, request.looked_at())).await?;
        let mut page = Page::new(now());
        for version in listing.versions {
            match format::decode(&version.bytes) {
                Ok((_, record)) if is_forgotten(&record) || !request.takes(record.state) => {}
                Ok((key, record)) => page.records.push(Listed::new(key, record)),
                Err(_) => page.unreadable.extend(format::take_key(&mut &*version.bytes)),
            }
        }
        page.next = listing.next.map(Cursor::from_bytes);
        Ok(page)
    }

    pub async fn inspect(&self) -> Result<Inspection, StoreError> {
        let mut inspection = self.retried(|| self.service.inspect()).await?;
        let skew = self.settings.clock_skew;
        let text = format!("the callers' clocks judge leases: they must not differ by more than {skew:?}");
        inspection.find(Standing::Unknown, "clocks", text);
        Ok(inspection)
    }

    pub fn max_result_bytes(&self) -> Option<usize> {
        Some(self.room())
    }

    pub const fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

fn now() -> Timestamp {
    Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl<C: CompareAndSwap> CasStore<C> {
    /// A store of the records in this service.
    pub fn new(service: C, settings: CasSettings) -> Arc<Self> {
        let (results, held, waiters) = Default::default();
        Arc::new(Self { service, settings, results, held, waiters })
    }

    /// Upper limit in bytes for a result, and for the sum of the steps.
    fn room(&self) -> usize {
        self.service.max_bytes().saturating_sub(MAX_HEAD_BYTES)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<RecordKey, Versioned<C::Revision>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes requests to the service until one succeeds, an error is not transient, or the time is over. The
    /// requests run in the caller's task, with the timers and connections of the stores' own thread.
    async fn retried<T: Send, F>(&self, requests: impl FnMut() -> F + Send) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>> + Send,
    {
        let work = retry::retried(self.settings.operation_timeout, requests);
        own_runtime::entered(Box::pin(work)).await
    }

    async fn request(&self, key: &RecordKey, request: &Request) -> Result<Answer, StoreError> {
        let mark = self.results.mark(key);
        let guess = match request {
            // Unless a result is expected, the guess is that the object does not exist, because most keys are
            // new. This saves the first read.
            Request::Claim(_) if self.results.expects_result(mark) => None,
            Request::Claim(_) => Some(None),
            _ => self.held().remove(key).map(Some),
        };
        let decide = |record: Option<&Record>, now| {
            let transition = protocol::apply(record, Fence::default(), request, now);
            if let (Request::RecordStep(step), Some(record)) = (request, &transition.write) {
                let size = |step| step_bytes::encode(step).len() + 4;
                if record.steps.iter().map(size).sum::<usize>() > self.room() {
                    return Err(StoreError::no_room_for_step(size(&step.step), self.room()));
                }
            }
            Ok(transition)
        };
        let answer = self.change(key, guess, &decide).await?;
        self.results.saw(mark, &answer);
        Ok(answer)
    }

    /// Decides and writes until a write is accepted, no write is needed, or the time is over. `guess` is the
    /// record that the object probably contains; `Some(None)` means that the object probably does not exist.
    /// Without a guess, the store reads the object before the first decision.
    async fn change<A: Send>(
        &self,
        key: &RecordKey,
        mut guess: Option<Option<Versioned<C::Revision>>>,
        decide: &(impl Fn(Option<&Record>, Timestamp) -> Result<Transition<A>, StoreError> + Sync),
    ) -> Result<A, StoreError> {
        let attempt = || {
            let mut known = guess.take();
            async move {
                let mut is_guess = known.is_some();
                loop {
                    let seen = match known {
                        Some(seen) => seen,
                        None => self.look(key).await?,
                    };
                    let Transition { write, answer, .. } =
                        decide(seen.as_ref().map(|(record, _)| record), now())?;
                    known = match write {
                        Some(record) => match self.put(key, seen, record).await? {
                            Put::Written(_) => return Ok(answer),
                            Put::Refused(Some(version)) => Some(Some(read(key, version)?)),
                            Put::Refused(None) if is_guess => None,
                            // `retried` tries again after a pause.
                            Put::Refused(None) => {
                                return Err(StoreError::unavailable("others keep changing this record"));
                            }
                        },
                        // Without a write, nothing has confirmed the guess. So the store reads the object and
                        // decides again.
                        None if is_guess => None,
                        None => return Ok(answer),
                    };
                    is_guess = false;
                }
            }
        };
        self.retried(attempt).await
    }

    /// Writes a record in place of the record `seen`.
    async fn put(
        &self,
        key: &RecordKey,
        seen: Option<Versioned<C::Revision>>,
        mut record: Record,
    ) -> Result<Put<C::Revision>, StoreError> {
        let skew = self.settings.clock_skew;
        let (seen, revision) = seen.unzip();
        // Times that the transition copied from the old record already include the skew.
        if seen.as_ref().is_none_or(|seen| seen.lease_until != record.lease_until) {
            record.lease_until = record.lease_until.after(skew);
        }
        if seen.is_none_or(|seen| seen.expires_at != record.expires_at) {
            record.expires_at = record.expires_at.map(|end| end.after(skew));
        }
        let keep = record.expires_at.map(|end| end.after(skew).since(now()).max(MEMORY_OF_FENCES));
        let bytes = format::encode(key, &record);
        let is_remembered = record.state == State::InFlight && bytes.len() <= MAX_HELD_BYTES;
        let put = self.service.put(&ObjectName::of(key), bytes, revision.as_ref(), keep).await?;
        if is_remembered && let Put::Written(revision) = &put {
            let mut held = self.held();
            if held.len() >= MAX_HELD {
                held.clear();
            }
            held.insert(key.clone(), (record, revision.clone()));
        }
        Ok(put)
    }

    /// Reads the record of a key, even if it is expired.
    async fn look(&self, key: &RecordKey) -> Result<Option<Versioned<C::Revision>>, StoreError> {
        let version = self.service.get(&ObjectName::of(key)).await?;
        version.map(|version| read(key, version)).transpose()
    }

    /// Whether a purge may delete a record: it is expired by every clock. The fence of a forgotten record
    /// must also be older than [`MEMORY_OF_FENCES`].
    fn is_over(&self, record: &Record) -> bool {
        if is_forgotten(record) {
            return Timestamp::from_micros(record.fence.get()).after(MEMORY_OF_FENCES) <= now();
        }
        record.expires_at.is_some_and(|end| end.after(self.settings.clock_skew) <= now())
    }
}

fn read<R>(key: &RecordKey, Version { bytes, revision }: Version<R>) -> Result<Versioned<R>, StoreError> {
    let (owner, record) = format::decode(&bytes).map_err(|wrong| wrong.error(key))?;
    if owner == *key { Ok((record, revision)) } else { Err(Unreadable("key").error(key)) }
}

/// Whether this is the remainder of a forgotten record. [`Resolution::ForgetSeen`] sets the completion of a
/// record to the first microsecond of the epoch.
fn is_forgotten(record: &Record) -> bool {
    record.completed_at == Some(Timestamp::from_micros(1))
}
