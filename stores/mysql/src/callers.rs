//! Runs operations that come alone on a connection in the caller's runtime.
//!
//! To pass an operation to the stores' own runtime and its answer back takes about as long as the server does. So one that comes alone,
//! and is one exchange, uses a connection that its caller's runtime drives, if there is one. Nothing here holds a row locked between two
//! exchanges: a body that blocks its thread would hold up other processes. Whatever this does not settle goes the way of the queue.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use tokio::runtime::{Handle, Id};
use tokio::time::{sleep, timeout};

use super::change;
use super::operation::{Answer, Operation};
use super::reading;
use super::setting::Setting;
use crate::db::failure::{self, Failure};
use crate::db::session::Session;
use idem_core::StoreError;
use idem_core::support::own_runtime::own_runtime;

/// How many runtimes can have a connection. Others use the queue only.
const MOST: usize = 64;
/// With more operations under way, the queue is faster: those that wait share an exchange.
const FEW: usize = 2;
/// How long a connection may be idle before it is closed. So those of runtimes that ended are closed, too.
const IDLE: Duration = Duration::from_secs(60);
/// How long a runtime is without a connection after one could not be opened, or broke.
const PAUSE: Duration = Duration::from_secs(1);

/// The connections of one store, one for each runtime that calls it.
pub(super) struct Callers {
    setting: Arc<Setting>,
    places: Mutex<HashMap<Id, Place>>,
    under_way: AtomicUsize,
    idle: Duration,
}

/// What a runtime has.
enum Place {
    /// Its connection is in use, or is being opened.
    Taken,
    Free { session: Session, runtime: Handle, since: Instant },
    /// None before this instant.
    Shut(Instant),
}

/// One operation under way.
pub(super) struct UnderWay<'c> {
    callers: &'c Arc<Callers>,
    is_one_of_few: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.callers.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What an attempt to run an operation alone has come to.
pub(super) enum Alone {
    NotTried,
    /// It has changed nothing, and takes more than one exchange.
    Unsettled,
    Settled(Result<Answer, StoreError>),
}

/// A place that this has taken, until it is dropped.
struct Taken {
    callers: Arc<Callers>,
    runtime: Handle,
    session: Option<Session>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let place = match self.session.take().filter(Session::is_usable) {
            Some(session) => Place::Free { session, runtime: self.runtime.clone(), since: Instant::now() },
            None => Place::Shut(Instant::now() + PAUSE),
        };
        self.callers.places().insert(self.runtime.id(), place);
    }
}

impl Callers {
    pub(super) fn new(setting: Arc<Setting>) -> Arc<Self> {
        let (places, under_way) = (Mutex::default(), AtomicUsize::new(0));
        Arc::new(Self { setting, places, under_way, idle: IDLE })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<Id, Place>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts an operation until it has its answer.
    pub(super) fn count(self: &Arc<Self>) -> UnderWay<'_> {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { callers: self, is_one_of_few: before < FEW }
    }

    /// The connection of the current runtime, if it is free. If there is none, begins to open one for later operations.
    fn take(self: &Arc<Self>) -> Option<Taken> {
        let runtime = Handle::try_current().ok()?;
        if own_runtime().ok()?.id() == runtime.id() {
            return None;
        }
        let mut places = self.places();
        let is_full = places.len() >= MOST;
        let session = match places.get_mut(&runtime.id()) {
            Some(Place::Taken) => return None,
            Some(Place::Shut(until)) if Instant::now() < *until => return None,
            Some(Place::Shut(_)) => None,
            Some(place) => match std::mem::replace(place, Place::Taken) {
                Place::Free { session, .. } => Some(session),
                _ => None,
            },
            None if is_full => return None,
            None => None,
        };
        if session.is_some() {
            drop(places);
            return Some(Taken { callers: self.clone(), runtime, session });
        }
        if places.is_empty() {
            own_runtime().ok()?.spawn(close_idle(Arc::downgrade(self), self.idle));
        }
        places.insert(runtime.id(), Place::Taken);
        drop(places);
        let mut taken = Taken { callers: self.clone(), runtime: runtime.clone(), session: None };
        runtime.spawn(async move {
            taken.session = taken.callers.setting.connector.connect().await.ok();
            drop(taken);
        });
        None
    }
}

impl UnderWay<'_> {
    /// Runs the operation alone, if it can be.
    pub(super) async fn alone(&self, asked: &Arc<Operation>) -> Alone {
        let may_be = self.is_one_of_few && asked.may_be_alone();
        let Some(taken) = may_be.then(|| self.callers.take()).flatten() else { return Alone::NotTried };
        let runtime = taken.runtime.clone();
        let work = Box::pin(exchange(taken, asked.clone()));
        GoesOn { work: Some(work), is_begun: false, runtime }.await
    }
}

async fn exchange(mut taken: Taken, asked: Arc<Operation>) -> Alone {
    let callers = taken.callers.clone();
    let Some(mut session) = taken.session.take() else { return Alone::NotTried };
    let setting = &callers.setting;
    let time = setting.connector.timeout;
    let done = timeout(time, async {
        if asked.is_read() {
            let mut answers = reading::get(&mut session, setting, &[&asked]).await?;
            return Ok(answers.pop().flatten());
        }
        change::alone(&mut session, setting, &asked).await
    });
    let done = done.await.unwrap_or_else(|_| Err(failure::late(time)));
    taken.session = setting.connector.kept(session).await;
    match done {
        Ok(Some(answer)) => Alone::Settled(answer),
        Err(Failure::Broken(error)) => Alone::Settled(Err(error)),
        // The queue finds out what it is about.
        Ok(None) | Err(_) => Alone::Unsettled,
    }
}

/// Work that is polled where it is awaited. What is left of it when it is dropped goes on in a task of the runtime, so that the
/// connection can be used again.
struct GoesOn {
    work: Option<BoxFuture<'static, Alone>>,
    is_begun: bool,
    runtime: Handle,
}

impl Future for GoesOn {
    type Output = Alone;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.is_begun = true;
        let Some(work) = &mut self.work else { return Poll::Ready(Alone::NotTried) };
        let polled = work.as_mut().poll(context);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        if let Some(work) = self.work.take().filter(|_| self.is_begun) {
            self.runtime.spawn(work);
        }
    }
}

/// Closes connections that were not used for some time.
async fn close_idle(callers: Weak<Callers>, idle: Duration) {
    loop {
        sleep(idle / 2).await;
        let Some(callers) = callers.upgrade() else { return };
        let now = Instant::now();
        let mut places = callers.places();
        let old: Vec<Place> = places
            .extract_if(|_, place| match place {
                Place::Taken => false,
                Place::Free { since, .. } => now.duration_since(*since) >= idle,
                Place::Shut(until) => *until <= now,
            })
            .map(|(_, place)| place)
            .collect();
        let is_empty = places.is_empty();
        drop(places);
        close(old, callers.setting.connector.timeout);
        if is_empty {
            return;
        }
    }
}

fn close(places: impl IntoIterator<Item = Place>, time: Duration) {
    for place in places {
        if let Place::Free { session, runtime, .. } = place {
            runtime.spawn(session.close(time));
        }
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        let places = self.places.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(places.drain().map(|(_, place)| place), self.setting.connector.timeout);
    }
}
