//! Walks through the store for all requests. Only one walk runs at a time, in a separate task.
//!
//! Owns the rules for when a walk begins, and for what a request gets while the walk runs. A request waits a
//! few seconds for a new walk. If the walk has not ended by then, the request gets the last result, with its
//! age. If a request is dropped, the walk continues.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::{RecordKey, Scope};
use idem_operate_kit::{Access, Error, Kind, Result};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::look::{Findings, Query};

/// If this console changes nothing, it serves a result for at least this time without a new walk.
pub(crate) const FRESH: Duration = Duration::from_secs(2);
/// As [`FRESH`], for stores where a walk costs money.
pub(crate) const FRESH_IF_COSTLY: Duration = Duration::from_secs(60);
/// After a walk of a query, the console pauses for at least this many times the walk's duration, so that it
/// does not read a large store all the time. Exceptions: this console has changed a record, or the walk
/// failed.
const PAUSES: u32 = 4;
/// How long a request waits for a walk.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many results are kept.
const CAPACITY: usize = 32;
/// How many names of records are kept. At this limit, all names are dropped.
const NAMES: usize = 10_000;

/// A walk that has ended.
struct Ended {
    begun: Instant,
    at: Instant,
    result: Result<Arc<Findings>>,
    /// How many changes this console had made before the walk began.
    changes: u64,
}

/// The last walk of a query, and the running walk, if there is one.
#[derive(Default)]
struct Slot {
    last: Option<Ended>,
    running: Option<watch::Receiver<()>>,
}

impl Slot {
    fn is_fresh(&self, fresh: Duration, changes: u64) -> bool {
        self.last.as_ref().is_some_and(|last| {
            let pause = match last.result {
                Ok(_) => fresh.max((last.at - last.begun) * PAUSES),
                Err(_) => FRESH,
            };
            last.changes == changes && last.at.elapsed() < pause
        })
    }

    /// The running walk. A walk that panicked does not count, because its channel is closed.
    fn running(&self) -> Option<watch::Receiver<()>> {
        self.running.clone().filter(|running| running.has_changed().is_ok())
    }
}

/// A result, and the time since it was read.
pub(crate) type Aged = (Arc<Findings>, Duration);

/// The last result of each query, and the walks that run or wait.
pub(crate) struct Walks {
    access: Access,
    fresh: Duration,
    slots: Mutex<HashMap<Query, Slot>>,
    /// How many changes this console made.
    changes: AtomicU64,
    /// Locked while a walk runs.
    one: tokio::sync::Mutex<()>,
    /// The stored names of records that were shown, by operation and digest.
    names: Mutex<HashMap<(String, String), RecordKey>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Walks {
    pub(crate) fn new(access: Access, fresh: Duration) -> Self {
        Self {
            access,
            fresh,
            slots: Mutex::default(),
            changes: AtomicU64::default(),
            one: tokio::sync::Mutex::default(),
            names: Mutex::default(),
        }
    }

    /// The last result. If it is not fresh, this first waits for a new walk, but at most for `PATIENCE`.
    /// `None` if no walk of this query has ended yet.
    pub(crate) async fn get(self: &Arc<Self>, query: &Query) -> Result<Option<Aged>> {
        if let Some(mut running) = self.begin(query)? {
            // The channel closes when the walk has ended.
            let _ = timeout(PATIENCE, running.changed()).await;
        }
        let slots = locked(&self.slots);
        match slots.get(query).and_then(|slot| slot.last.as_ref()) {
            Some(Ended { result, begun, .. }) => Ok(Some((result.clone()?, begun.elapsed()))),
            None => Ok(None),
        }
    }

    /// Returns the running walk of this query, or a new one if none runs. Returns `None` if the last result
    /// is fresh.
    fn begin(self: &Arc<Self>, query: &Query) -> Result<Option<watch::Receiver<()>>> {
        let mut slots = locked(&self.slots);
        if slots.len() >= CAPACITY && !slots.contains_key(query) {
            let idle = slots.iter().filter(|(_, slot)| slot.running().is_none());
            let oldest = idle.min_by_key(|(_, slot)| slot.last.as_ref().map(|last| last.at));
            let oldest = oldest.map(|(query, _)| query.clone());
            let busy = || Error::new(Kind::Refused, "too many searches at once: try again in a moment");
            slots.remove(&oldest.ok_or_else(busy)?);
        }
        let slot = slots.entry(query.clone()).or_default();
        if slot.is_fresh(self.fresh, self.changes.load(Ordering::SeqCst)) {
            return Ok(None);
        }
        if let Some(running) = slot.running() {
            return Ok(Some(running));
        }
        let (ends, running) = watch::channel(());
        slot.running = Some(running.clone());
        let (walks, query) = (self.clone(), query.clone());
        tokio::spawn(async move {
            walks.walk(query).await;
            drop(ends);
        });
        Ok(Some(running))
    }

    async fn walk(&self, query: Query) {
        let _one = self.one.lock().await;
        let (begun, changes) = (Instant::now(), self.changes.load(Ordering::SeqCst));
        let result = query.read(&self.access).await.map(Arc::new);
        if let Ok(found) = &result {
            self.remember(&found.names);
        }
        let ended = Ended { begun, at: Instant::now(), result, changes };
        locked(&self.slots).insert(query, Slot { last: Some(ended), running: None });
    }

    pub(crate) fn remember(&self, shown: &[RecordKey]) {
        let mut names = locked(&self.names);
        if names.len() + shown.len() > NAMES {
            names.clear();
        }
        for name in shown {
            let place = (name.scope().as_str().to_owned(), name.digest().to_string());
            names.insert(place, name.clone());
        }
    }

    /// The stored name of the record with this digest in this operation. If a page has shown the record, this
    /// needs no walk.
    pub(crate) async fn named(self: &Arc<Self>, scope: Scope, digest: &str) -> Result<Option<RecordKey>> {
        let place = (scope.as_str().to_owned(), digest.to_owned());
        let known = || locked(&self.names).get(&place).cloned();
        if let Some(name) = known() {
            return Ok(Some(name));
        }
        match self.get(&Query::Find(Some(scope), digest.to_owned())).await? {
            Some((found, _)) => Ok(found.names.first().cloned()),
            None => Err(still_looking()),
        }
    }

    /// Notes that a record changed. The next requests start a new walk, and see the new state when that walk
    /// ends.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) fn still_looking() -> Error {
    Error::new(Kind::Refused, "the console is still reading the store for this: try again in a moment")
}
