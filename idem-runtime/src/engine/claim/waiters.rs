//! Lets the callers of one process that wait for the same key share one poll of the store.
//!
//! Owns who waits for which key, and the task that reads the key's record for all waiters in one runtime. A
//! waiter gets a result from the task; when the key may be free, the task wakes one waiter, which claims the
//! key under its own policy.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use backon::BackoffBuilder;
use futures_util::future::select;
use tokio::runtime::{Handle, Id};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use crate::engine::retry::{answered, backoff};
use crate::error::StoreError;
use idem_core::protocol::{ClaimAnswer, Fence, Record, State, Timestamp};
use idem_core::{RecordKey, Store};

/// A refusal is out of date if the store last confirmed it longer ago than this time, unless a reading of the
/// record is under way. If the refusal is out of date, a waiter whose time is over asks the store itself.
const STALE: Duration = Duration::from_secs(1);

/// The polls of one store in this process, for all keys that callers wait for. The clones of a store share
/// this value, in the field that the store has for it.
#[derive(Clone, Default)]
pub(crate) struct Waiters(Arc<Polls>);

#[derive(Default)]
struct Polls {
    /// How many polls there are. Most results have no waiters, so `wake_in` checks this number first.
    count: AtomicUsize,
    of_keys: Mutex<PollsOfKeys>,
}

type PollsOfKeys = HashMap<RecordKey, Vec<Arc<Poll>>>;

/// Identifies a store in this process. All clones of a store have the same identity. The identity is valid as
/// long as one of the clones exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreIdentity(*const ());

impl StoreIdentity {
    /// The identity of a store, if the store has a field for its waiters.
    pub(crate) fn of(store: &impl Store) -> Option<Self> {
        let waiters = store.waiters().shared(Waiters::default)?;
        Some(Self(Arc::as_ptr(&waiters.0).cast()))
    }
}

/// What the poll of one key knows, in one runtime.
pub(super) struct Poll {
    runtime: Id,
    /// The record, once it has a result. Each waiter has a receiver, made under the lock of all polls.
    result: watch::Sender<Option<Arc<Record>>>,
    /// Wakes one waiter, which claims the key.
    pub(super) claimable: Notify,
    /// Wakes the task when something happened to the key in this process.
    pub(super) changed: Notify,
    refusal: Mutex<Refusal>,
}

/// The last refusal of a claim.
#[derive(Clone, Copy)]
pub(super) struct Refusal {
    /// Until this time the key is in flight (if `in_flight`) or not due. A renewal of the lease moves this
    /// time.
    until: Instant,
    in_flight: bool,
    /// When the store last confirmed this refusal.
    confirmed: Instant,
    /// The start of the current reading, if it began after this refusal.
    reading_since: Option<Instant>,
    /// The end of the lease in the record that the last reading saw, by the store's clock.
    lease_until: Option<Timestamp>,
}

impl Refusal {
    pub(super) fn now(retry_after: Duration, in_flight: bool) -> Self {
        let confirmed = Instant::now();
        let until = confirmed.checked_add(retry_after).unwrap_or(confirmed);
        Self { until, in_flight, confirmed, reading_since: None, lease_until: None }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl Poll {
    pub(super) fn last_refusal(&self) -> MutexGuard<'_, Refusal> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last refusal as an answer, if the refusal still lasts and is up to date. It is up to date if the
    /// store confirmed it within [`STALE`], or if a reading has been under way for at most `patience`.
    pub(super) fn refusal(&self, patience: Duration) -> Option<ClaimAnswer> {
        let refusal = *self.last_refusal();
        let is_fresh = refusal.confirmed.elapsed() <= STALE
            || refusal.reading_since.is_some_and(|since| since.elapsed() <= patience);
        let retry_after = refusal.left();
        let answer = if refusal.in_flight {
            ClaimAnswer::Busy { retry_after }
        } else {
            ClaimAnswer::RetryAt { retry_after }
        };
        (is_fresh && !retry_after.is_zero()).then_some(answer)
    }

    /// Whether the record still says what the last refusal said. `fence` is the fence of the previous
    /// reading.
    fn confirms(&self, record: &Record, fence: &mut Option<Fence>) -> bool {
        let is_same = fence.replace(record.fence).is_none_or(|before| before == record.fence);
        let mut refusal = self.last_refusal();
        let state = if refusal.in_flight { State::InFlight } else { State::Released };
        let confirms = is_same && record.state == state && !refusal.left().is_zero();
        if confirms {
            refusal.confirmed = Instant::now();
            // The owner may have renewed its lease since the previous reading.
            let before = refusal.lease_until.replace(record.lease_until).unwrap_or(record.lease_until);
            let renewed = record.lease_until.since(before);
            refusal.until = refusal.until.checked_add(renewed).unwrap_or(refusal.until);
        }
        confirms
    }
}

impl Waiters {
    /// Wakes the polls of this key of this store.
    pub(crate) fn wake_in(store: &impl Store, key: &RecordKey) {
        if let Some(waiters) = store.waiters().shared(Self::default)
            && waiters.0.count.load(Ordering::SeqCst) > 0
        {
            waiters.polls().get(key).into_iter().flatten().for_each(|poll| poll.changed.notify_one());
        }
    }

    fn polls(&self) -> MutexGuard<'_, PollsOfKeys> {
        self.0.of_keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a caller wait for this key after its claim was refused. Starts a poll if this key has no poll
    /// in this runtime yet. Each reading of the record may take at most `patience`.
    pub(super) fn join<S: Store>(
        store: &S,
        key: &RecordKey,
        runtime: &Handle,
        patience: Duration,
        refusal: Refusal,
    ) -> Waiter {
        // If the store has no field for its waiters, each caller gets a new value and polls by itself.
        let waiters = store.waiters().shared(Self::default).cloned().unwrap_or_default();
        let mut all = waiters.polls();
        let polls = all.entry(key.clone()).or_default();
        let known = polls.iter().find(|poll| poll.runtime == runtime.id()).cloned();
        let is_new = known.is_none();
        let poll = known.unwrap_or_else(|| {
            let poll = Arc::new(Poll {
                runtime: runtime.id(),
                result: watch::Sender::new(None),
                claimable: Notify::new(),
                changed: Notify::new(),
                refusal: Mutex::new(refusal),
            });
            // The poll is counted before the task reads the key. So a call that records a result after that
            // reading wakes the task.
            waiters.0.count.fetch_add(1, Ordering::SeqCst);
            polls.push(poll.clone());
            poll
        });
        *poll.last_refusal() = refusal;
        let waiter = Waiter { result: poll.result.subscribe(), poll: poll.clone() };
        drop(all);
        if is_new {
            // The lock must be released before `spawn`: a runtime that was shut down drops the task at once,
            // and the task's `drop` takes the lock.
            let task = PollTask { store: store.clone(), patience, key: key.clone(), waiters, poll };
            runtime.spawn(task.run());
        }
        waiter
    }
}

/// One waiter. Dropping it ends the wait.
pub(super) struct Waiter {
    pub(super) poll: Arc<Poll>,
    pub(super) result: watch::Receiver<Option<Arc<Record>>>,
}

/// The task that reads the record of a key for its waiters.
struct PollTask<S> {
    store: S,
    patience: Duration,
    key: RecordKey,
    waiters: Waiters,
    poll: Arc<Poll>,
}

impl<S: Store> PollTask<S> {
    async fn run(self) {
        let mut pauses = backoff().build();
        let mut fence = None;
        // The first reading comes at once, because the key may have changed since the refusal.
        loop {
            let polls = self.waiters.polls();
            if self.poll.result.receiver_count() == 0 {
                return self.remove_from(polls);
            }
            drop(polls);
            match self.read().await {
                Ok(Some(record)) if record.result.is_some() => {
                    let polls = self.waiters.polls();
                    if self.poll.last_refusal().reading_since.is_none() {
                        // A claim was refused after this reading began. With this record the claim would have
                        // been a replay, so the record may be deleted by now.
                        continue;
                    }
                    // Later callers get a new poll, because the record may be deleted and made again by then.
                    self.remove_from(polls);
                    self.poll.result.send_replace(Some(Arc::new(record)));
                    return;
                }
                Ok(Some(record)) if self.poll.confirms(&record, &mut fence) => {}
                // No waiter is woken, because a waiter that asked the store itself could not find out more.
                Err(error) if error.is_transient() => {}
                _ => self.poll.claimable.notify_one(),
            }
            self.poll.last_refusal().reading_since = None;
            let remaining = Some(self.poll.last_refusal().left()).filter(|remaining| !remaining.is_zero());
            let pause = pauses.next().unwrap_or(STALE);
            let pause = remaining.map_or(pause, |remaining| pause.min(remaining));
            let (changed, left) = (pin!(self.poll.changed.notified()), pin!(self.poll.result.closed()));
            let _ = timeout(pause, select(changed, left)).await;
        }
    }

    async fn read(&self) -> Result<Option<Record>, StoreError> {
        self.poll.last_refusal().reading_since = Some(Instant::now());
        answered("the record", self.patience, self.store.get(&self.key)).await
    }
}

impl<S> PollTask<S> {
    fn remove_from(&self, mut all: MutexGuard<'_, PollsOfKeys>) {
        let Some(polls) = all.get_mut(&self.key) else { return };
        let before = polls.len();
        polls.retain(|poll| !Arc::ptr_eq(poll, &self.poll));
        self.waiters.0.count.fetch_sub(before - polls.len(), Ordering::SeqCst);
        if polls.is_empty() {
            all.remove(&self.key);
        }
    }
}

impl<S> Drop for PollTask<S> {
    /// Removes the poll, even if the runtime drops the task.
    fn drop(&mut self) {
        self.remove_from(self.waiters.polls());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;
    use idem_core::protocol::{Claim, Complete, Owner, StoredResult, Tombstone, Verdict};
    use idem_core::{Key, Scope};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn nothing_stays_of_callers_that_have_stopped_waiting() {
        let (store, owner) = (MemoryStore::new(), Owner::random());
        let key = RecordKey::new(Scope::new("test").unwrap(), Key::new("k").unwrap());
        let claim = Claim::new(owner, SECOND * 30, SECOND * 3_600);
        let ClaimAnswer::Granted(grant) = store.claim(&key, &claim).await.unwrap() else { panic!() };
        let runtime = Handle::current();
        let join = || Waiters::join(&store, &key, &runtime, SECOND, Refusal::now(SECOND * 30, true));
        let waiters = store.waiters().shared(Waiters::default).unwrap();
        let polls = || (waiters.0.count.load(Ordering::SeqCst), waiters.polls().len());

        let (first, second) = (join(), join());
        drop(first);
        tokio::time::sleep(SECOND).await;
        assert_eq!(polls(), (1, 1));
        drop(second);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(polls(), (0, 0));

        // A result ends the poll, too, though its waiters are still there.
        let third = join();
        let result = StoredResult::Tombstone(Tombstone::TooLarge);
        let complete = Complete::new(owner, grant.fence, Verdict::Completed, result, SECOND * 60);
        store.complete(&key, &complete).await.unwrap();
        Waiters::wake_in(&store, &key);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert!(third.result.borrow().is_some());
        assert_eq!(polls(), (0, 0));
    }
}
