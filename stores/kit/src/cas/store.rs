//! The store: reads, decisions and conditional writes, the declared clock skew, and what a process remembers.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use idem_core::inspection::{Inspection, Standing};
use idem_core::listing::{Cursor, List, Listed, Page};
use idem_core::protocol::{
    self, Answer, ClaimAnswer, Fence, Owner, Record, Request, State, Timestamp, Transition, is_live,
};
use idem_core::{RecordKey, Store, StoreError, Waiters};

use super::format::{self, MAX_HEAD_BYTES};
use super::{CasSettings, CompareAndSwap, ObjectName, Version};
use crate::hints::Hints;
use crate::{own_runtime, retry, step_bytes};

/// The minimum time for which an object stays, expired or not. It has the fence that the next one must exceed, also if the
/// next clock is behind.
const MEMORY_OF_FENCES: Duration = Duration::from_secs(3_600);

/// The expiry of a forgotten record.
const NEVER: Timestamp = Timestamp::from_micros(0);

/// How many claims of this process are remembered with their revisions.
const MAX_HELD: usize = 4_096;

/// The largest record that is remembered with them.
const MAX_HELD_BYTES: usize = 16 * 1_024;

/// How many objects a purge reads at a time.
const PURGED_AT_ONCE: usize = 500;

/// Records over a [`CompareAndSwap`].
///
/// Requests run in the caller's task, renewals and releases in the [stores' own thread](crate::own_runtime), each with that
/// thread's timers and connections.
pub struct CasStore<C: CompareAndSwap>(Arc<Inner<C>>);

struct Inner<C: CompareAndSwap> {
    service: C,
    settings: CasSettings,
    /// Keys of which this process saw a result.
    results: Hints,
    /// What this process wrote for its claims: a holder's next write needs no read before it.
    held: Mutex<HashMap<RecordKey, Seen<C::Revision>>>,
    waiters: Waiters,
}

/// A record as it was read, with its revision. Its lease and its expiry have the clock skew added, because the writer's
/// clock may be behind this one: what is over then is over by every clock.
#[derive(Clone)]
struct Seen<R> {
    record: Record,
    revision: R,
}

impl<C: CompareAndSwap> Clone for CasStore<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: CompareAndSwap> CasStore<C> {
    /// A store of the records in this service.
    pub fn new(service: C, settings: CasSettings) -> Self {
        let (results, held, waiters) = Default::default();
        Self(Arc::new(Inner { service, settings, results, held, waiters }))
    }

    /// The service.
    #[must_use]
    pub fn service(&self) -> &C {
        &self.0.service
    }

    /// Runs `work` for at most the operation timeout.
    fn in_time<A, F, W>(
        &self,
        work: W,
    ) -> Pin<Box<impl Future<Output = Result<A, StoreError>> + use<A, F, W, C>>>
    where
        F: Future<Output = Result<A, StoreError>>,
        W: FnOnce(Arc<Inner<C>>) -> F,
    {
        let (work, time) = (work(self.0.clone()), self.0.settings.operation_timeout);
        Box::pin(async move {
            let late = |_| StoreError::outcome_unknown(format!("no answer within {time:?}"));
            tokio::time::timeout(time, work).await.map_err(late)?
        })
    }
}

impl<C: CompareAndSwap> Store for CasStore<C> {
    #[expect(clippy::manual_async_fn, reason = "an `async fn` has each argument in its future twice")]
    fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<Answer, StoreError>> + Send {
        async move {
            request.check_size(self.0.max_result_bytes())?;
            let counts_for_others = matches!(request, Request::Renew(_) | Request::Release(_));
            let key = key.clone();
            let work = self.in_time(|inner| async move { inner.request(&key, &request).await });
            match counts_for_others {
                true => own_runtime::apart(work).await,
                false => own_runtime::entered(work).await,
            }
        }
    }

    /// An expired record without a result stays, which keeps the fence.
    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let key = key.clone();
        own_runtime::apart(self.in_time(|inner| async move { inner.forget(&key).await })).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let key = key.clone();
        own_runtime::entered(self.in_time(|inner| async move { inner.live(&key).await })).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let inner = self.0.clone();
        own_runtime::apart(async move { inner.purge(limit).await }).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let request = request.clone();
        own_runtime::apart(self.in_time(|inner| async move { inner.list(&request).await })).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let work = self.in_time(|inner| async move { inner.service.inspect().await });
        let mut inspection = own_runtime::apart(work).await?;
        let skew = self.0.skew();
        let text = format!("the callers' clocks judge leases: they must not differ by more than {skew:?}");
        inspection.find(Standing::Unknown, "clocks", text);
        Ok(inspection)
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.max_result_bytes())
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

/// This machine's time.
fn now() -> Timestamp {
    Timestamp::default().after(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl<C: CompareAndSwap> Inner<C> {
    fn skew(&self) -> Duration {
        self.settings.clock_skew
    }

    /// The largest result, and the largest sum of steps.
    fn max_result_bytes(&self) -> usize {
        self.service.max_bytes().saturating_sub(MAX_HEAD_BYTES)
    }

    async fn request(&self, key: &RecordKey, request: &Request) -> Result<Answer, StoreError> {
        let mark = self.results.mark(key);
        let guess = match request {
            // Most keys are new, so the first guess is that the object does not exist, without reading first.
            Request::Claim(_) if self.results.expects_result(mark) => None,
            Request::Claim(_) => Some(None),
            _ => self.held(|held| held.remove(key)).map(Some),
        };
        let decide = |record: Option<&Record>, now| {
            let transition = protocol::apply(record, Fence::default(), request, now);
            if let (Request::RecordStep(step), Some(record)) = (request, &transition.write) {
                let bytes = self.max_result_bytes();
                if record.steps.iter().map(|step| step_bytes::encode(step).len() + 4).sum::<usize>() > bytes {
                    let size = step_bytes::encode(&step.step).len();
                    return Err(StoreError::no_room_for_step(size, bytes));
                }
            }
            Ok(transition)
        };
        let mut answer = self.apply(key, guess, decide).await?;
        self.results.saw(mark, &answer);
        if let Answer::Claim(ClaimAnswer::Replay(replay)) = &mut answer {
            // The end that was written, as in a list: a reader adds the skew once.
            replay.expires_at = replay.expires_at.map(|end| end.before(self.skew()));
        }
        Ok(answer)
    }

    fn held<A>(&self, work: impl FnOnce(&mut HashMap<RecordKey, Seen<C::Revision>>) -> A) -> A {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Applies a transition until its write is accepted or the time is over. `guess` is what is probably there.
    async fn apply<A>(
        &self,
        key: &RecordKey,
        guess: Option<Option<Seen<C::Revision>>>,
        decide: impl Fn(Option<&Record>, Timestamp) -> Result<Transition<A>, StoreError>,
    ) -> Result<A, StoreError> {
        let mut guess = Some(guess);
        let attempt = || self.attempt(key, guess.take().flatten(), &decide);
        retry::retried(self.settings.operation_timeout, attempt).await
    }

    async fn attempt<A>(
        &self,
        key: &RecordKey,
        mut guess: Option<Option<Seen<C::Revision>>>,
        decide: impl Fn(Option<&Record>, Timestamp) -> Result<Transition<A>, StoreError>,
    ) -> Result<A, StoreError> {
        loop {
            let is_guess = guess.is_some();
            let seen = match guess.take() {
                Some(seen) => seen,
                None => self.look(key).await?,
            };
            let Transition { write, answer, .. } = decide(seen.as_ref().map(|seen| &seen.record), now())?;
            match write {
                // Only a read may decide what nothing confirms.
                None if is_guess => {}
                None => return Ok(answer),
                Some(record) if self.put(key, seen.as_ref(), &record).await? => return Ok(answer),
                Some(_) if is_guess => {}
                Some(_) => return Err(StoreError::unavailable("other callers keep changing this record")),
            }
        }
    }

    async fn put(
        &self,
        key: &RecordKey,
        seen: Option<&Seen<C::Revision>>,
        record: &Record,
    ) -> Result<bool, StoreError> {
        let keep = record.expires_at.map(|end| {
            let over = end.after(self.skew().saturating_mul(2));
            over.since(now()).max(MEMORY_OF_FENCES)
        });
        let bytes = format::encode(key, record);
        let is_small = bytes.len() <= MAX_HELD_BYTES;
        let revision = seen.map(|seen| &seen.revision);
        let Some(revision) = self.service.put(&ObjectName::of(key), bytes, revision, keep).await? else {
            return Ok(false);
        };
        if record.state == State::InFlight && is_small {
            self.held(|held| {
                if held.len() >= MAX_HELD {
                    held.clear();
                }
                held.insert(key.clone(), Seen { record: self.with_skew(record.clone()), revision })
            });
        }
        Ok(true)
    }

    fn with_skew(&self, mut record: Record) -> Record {
        record.lease_until = record.lease_until.after(self.skew());
        record.expires_at = record.expires_at.map(|end| end.after(self.skew()));
        record
    }

    /// Reads the record of a key, live or not.
    async fn look(&self, key: &RecordKey) -> Result<Option<Seen<C::Revision>>, StoreError> {
        let Some(Version { bytes, revision }) = self.service.get(&ObjectName::of(key)).await? else {
            return Ok(None);
        };
        match format::decode(bytes) {
            Ok((owner, record)) if owner == *key => {
                Ok(Some(Seen { record: self.with_skew(record), revision }))
            }
            Ok(_) => Err(StoreError::corrupt_record(format!(
                "the object of the record of {} (key digest {}) has the record of another key: do names here differ by \
                 more than upper and lower case?",
                key.scope(),
                key.digest()
            ))),
            Err(wrong) => Err(wrong.error(key)),
        }
    }

    /// The live record, with its times as written.
    async fn live(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let seen = retry::retried(self.settings.operation_timeout, || self.look(key)).await?;
        let Some(mut record) = seen.map(|seen| seen.record).filter(|record| is_live(record, now())) else {
            return Ok(None);
        };
        record.lease_until = record.lease_until.before(self.skew());
        record.expires_at = record.expires_at.map(|end| end.before(self.skew()));
        Ok(Some(record))
    }

    /// Replaces a live record by an expired one that keeps its fence.
    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        // When the record to forget was created. After a lost answer that record may be gone, and the object may have a
        // newer record, which must stay.
        let meant = AtomicU64::new(0);
        let never = NEVER.after(self.skew());
        self.apply(key, None, |record, now| {
            let created = meant.load(Ordering::Relaxed);
            Ok(match record {
                Some(record) if is_live(record, now) => {
                    if ![0, record.created_at.as_micros()].contains(&created) {
                        return Ok(Transition::new(None, true));
                    }
                    meant.store(record.created_at.as_micros(), Ordering::Relaxed);
                    Transition::new(Some(forgotten(record)), true)
                }
                // Expired, but not forgotten and not purged yet.
                Some(record) if created == 0 && record.expires_at != Some(never) => {
                    Transition::new(Some(forgotten(record)), false)
                }
                _ => Transition::new(None, created != 0),
            })
        })
        .await
    }

    /// One page. Its time is this machine's clock minus the clock skew, so what is over at that time is over by every clock.
    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let scope = request.scope.as_ref().map(|scope| format::part(scope.as_str()));
        let after = request.after.as_ref().map(Cursor::as_bytes);
        let limit = request.looked_at();
        let listing = retry::retried(self.settings.operation_timeout, || {
            self.service.list(scope.as_deref(), after, limit)
        })
        .await?;
        let mut page = Page::new(now().before(self.skew()));
        for version in listing.versions {
            match format::decode(version.bytes.clone()) {
                Ok((_, record)) if record.expires_at == Some(NEVER) || !request.takes(record.state) => {}
                Ok((key, record)) => page.records.push(Listed::new(key, record)),
                Err(_) => page.unreadable.extend(format::take_key(&mut { version.bytes })),
            }
        }
        page.next = listing.next.map(Cursor::from_bytes);
        Ok(page)
    }

    /// Deletes at most `limit` records that are expired by every clock, and what is left of those that were forgotten long ago.
    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let time = self.settings.operation_timeout;
        let (mut deleted, mut after) = (0, None::<Vec<u8>>);
        loop {
            let page =
                retry::retried(time, || self.service.list(None, after.as_deref(), PURGED_AT_ONCE)).await?;
            for Version { bytes, revision } in page.versions {
                if deleted >= limit {
                    return Ok(deleted);
                }
                let Ok((key, record)) = format::decode(bytes) else { continue };
                let (name, is_forgotten) = (ObjectName::of(&key), record.expires_at == Some(NEVER));
                if self.is_over(&record, is_forgotten)
                    && retry::retried(time, || self.service.delete(&name, &revision)).await?
                {
                    deleted += usize::from(!is_forgotten);
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(deleted),
            }
        }
    }

    /// Whether a record may be deleted: it is expired by every clock, and a new fence by any clock exceeds its fence.
    fn is_over(&self, record: &Record, is_forgotten: bool) -> bool {
        if is_forgotten {
            return Timestamp::from_micros(record.fence.get()).after(MEMORY_OF_FENCES) <= now();
        }
        record.expires_at.is_some_and(|end| end.after(self.skew().saturating_mul(2)) <= now())
    }
}

/// What stays of a forgotten record: its fence, without its result, steps, fingerprint and owner.
fn forgotten(record: &Record) -> Record {
    record
        .clone()
        .with_state(State::Released)
        .with_owner(Owner::NOBODY)
        .with_fingerprint(None)
        .with_result(None)
        .with_steps(Vec::new())
        .with_completed_at(None)
        .with_expires_at(Some(NEVER))
}
