//! Runs operations that come alone on a connection in the caller's runtime.
//!
//! To pass an operation to the stores' own runtime and its answer back takes about as long as the server does. So one that comes alone,
//! and is one exchange, uses a connection that its caller's runtime drives, if there is one. Nothing here holds a row locked between two
//! exchanges: a body that blocks its thread would hold up other processes. Whatever this does not settle goes the way of the queue.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, Either, select};
use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::time::sleep;

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
/// How long a runtime is without one after the attempt to open it panicked.
const LONG_PAUSE: Duration = Duration::from_secs(3_600);
/// The part of the operation timeout after which the queue is tried: nobody may drive the runtime, or the connection may be dead.
const PART: u32 = 2;

/// The connections of one store, one for each runtime that calls it.
pub(super) struct Callers {
    setting: Arc<Setting>,
    places: Mutex<HashMap<Id, Place>>,
    under_way: AtomicUsize,
    idle: Duration,
}

/// What a runtime has.
enum Place {
    /// A connection that is being opened or used. The task that does so began at `since`, and `late` tells it to give up.
    Taken {
        since: Instant,
        late: Arc<Notify>,
    },
    Free {
        session: Session,
        since: Instant,
    },
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
    /// One exchange was not enough.
    Unsettled,
    Settled(Result<Answer, StoreError>),
}

/// A place that this has taken, until it is dropped.
struct Taken {
    callers: Arc<Callers>,
    runtime: Handle,
    session: Option<Session>,
    late: Arc<Notify>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let place = match self.session.take().filter(Session::is_usable) {
            Some(session) => Place::Free { session, since: Instant::now() },
            // It seems that it has no network.
            None if std::thread::panicking() => Place::Shut(Instant::now() + LONG_PAUSE),
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

    /// How often to look at the places.
    fn tick(&self) -> Duration {
        (self.setting.connector.timeout / 4).min(self.idle / 2).max(Duration::from_millis(10))
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
            Some(Place::Taken { .. }) => return None,
            Some(Place::Shut(until)) if Instant::now() < *until => return None,
            Some(Place::Shut(_)) => None,
            None if is_full => return None,
            Some(place) => match std::mem::replace(place, Place::Shut(Instant::now())) {
                Place::Free { session, .. } => Some(session),
                _ => None,
            },
            None => None,
        };
        if places.is_empty() {
            own_runtime().ok()?.spawn(watch_over(Arc::downgrade(self)));
        }
        let (since, late) = (Instant::now(), Arc::new(Notify::new()));
        places.insert(runtime.id(), Place::Taken { since, late: late.clone() });
        drop(places);
        let mut taken = Taken { callers: self.clone(), runtime: runtime.clone(), session, late };
        if taken.session.is_some() {
            return Some(taken);
        }
        runtime.spawn(async move {
            let callers = taken.callers.clone();
            // By no timer of this runtime either.
            match select(pin!(callers.setting.connector.open()), pin!(taken.late.clone().notified_owned()))
                .await
            {
                Either::Left((opened, _)) => taken.session = opened.ok(),
                Either::Right(_) => {}
            }
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
    let work = async {
        if asked.is_read() {
            let mut answers = reading::get(&mut session, setting, &[&asked]).await?;
            return Ok(answers.pop().flatten());
        }
        change::alone(&mut session, setting, &asked).await
    };
    // By no timer of the caller's runtime, where a test may have paused them.
    let done = match select(pin!(work), pin!(taken.late.clone().notified_owned())).await {
        Either::Left((done, _)) => done,
        Either::Right(_) => Err(failure::late(setting.connector.timeout / PART)),
    };
    // A new connection may lead to a server that takes writes.
    if matches!(done, Err(Failure::ReadOnly(_))) {
        session.leave();
    }
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

/// Tells those who use a connection for too long, and closes connections that were not used for some time.
async fn watch_over(callers: Weak<Callers>) {
    loop {
        let Some(tick) = callers.upgrade().map(|callers| callers.tick()) else { return };
        sleep(tick).await;
        let Some(callers) = callers.upgrade() else { return };
        let (now, time) = (Instant::now(), callers.setting.connector.timeout);
        let mut places = callers.places();
        let mut old = Vec::new();
        places.retain(|_, place| {
            match place {
                Place::Taken { since, late } if now.duration_since(*since) >= time / PART => {
                    late.notify_one();
                }
                Place::Free { since, .. } if now.duration_since(*since) >= callers.idle => {
                    old.push(std::mem::replace(place, Place::Shut(now)));
                    return false;
                }
                Place::Shut(until) => return now < *until,
                Place::Taken { .. } | Place::Free { .. } => {}
            }
            true
        });
        let is_empty = places.is_empty();
        drop(places);
        close(old, time);
        if is_empty {
            return;
        }
    }
}

/// Closes them from the stores' own runtime: nobody may drive the one they belong to. To say goodbye takes no waiting.
fn close(places: impl IntoIterator<Item = Place>, time: Duration) {
    let Ok(own) = own_runtime() else { return };
    for place in places {
        if let Place::Free { session, .. } = place {
            own.spawn(session.close(time));
        }
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        let places = self.places.get_mut().unwrap_or_else(PoisonError::into_inner);
        close(places.drain().map(|(_, place)| place), self.setting.connector.timeout);
    }
}

#[cfg(test)]
mod tests {
    use idem_test_servers::{MariaDb, until};
    use tokio::runtime::{Builder, Runtime};

    use super::*;
    use crate::operation::Op;
    use crate::statements::test_session::{key_of, opened, setting_of};

    /// How many sessions the server has beside the one that asks.
    const SESSIONS: &str =
        "select count(*) from information_schema.processlist where user = 'root' and id <> connection_id()";

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn callers(server: &MariaDb, idle: Duration) -> Arc<Callers> {
        runtime().block_on(async { drop(opened(server).await) });
        let setting = Arc::new(setting_of(server));
        Arc::new(Callers { setting, places: Mutex::default(), under_way: AtomicUsize::new(0), idle })
    }

    async fn read(callers: &Arc<Callers>) -> Alone {
        callers.count().alone(&Arc::new(Operation { key: key_of("1"), op: Op::Get })).await
    }

    /// Reads until the connection of the current runtime is there.
    async fn settled(callers: &Arc<Callers>) {
        for _ in 0..1_000 {
            match read(callers).await {
                Alone::Settled(answer) => return drop(answer.unwrap()),
                Alone::NotTried => sleep(Duration::from_millis(5)).await,
                Alone::Unsettled => panic!("a read is settled"),
            }
        }
        panic!("the runtime got no connection");
    }

    #[test]
    fn connections_without_work_are_closed_those_of_runtimes_that_ended_too() {
        let server = MariaDb::start();
        let callers = callers(&server, Duration::from_millis(500));
        let (first, second) = (runtime(), runtime());
        first.block_on(settled(&callers));
        second.block_on(settled(&callers));
        assert_eq!(server.sql(SESSIONS), "2");
        drop(first);
        until("both are closed", || server.sql(SESSIONS) == "0");
        assert!(callers.places().is_empty());
        second.block_on(settled(&callers));
    }

    #[test]
    fn with_more_than_a_few_under_way_nothing_is_run_alone() {
        let server = MariaDb::start();
        let callers = callers(&server, IDLE);
        let runtime = runtime();
        runtime.block_on(settled(&callers));
        let others: Vec<_> = (0..FEW).map(|_| callers.count()).collect();
        assert!(matches!(runtime.block_on(read(&callers)), Alone::NotTried));
        drop(others);
        assert!(matches!(runtime.block_on(read(&callers)), Alone::Settled(_)));
    }

    #[test]
    fn an_answer_that_does_not_come_is_given_up_on_a_clock_that_no_test_pauses() {
        let mut server = MariaDb::start();
        let callers = callers(&server, IDLE);
        runtime().block_on(async {
            tokio::time::pause();
            settled(&callers).await;
            assert!(matches!(read(&callers).await, Alone::Settled(Ok(_))), "nothing is late");
            server.server().signal("-STOP");
            let begin = Instant::now();
            let Alone::Settled(Err(error)) = read(&callers).await else { panic!("it had an answer") };
            assert!(error.is_transient(), "{error}");
            let took = begin.elapsed();
            assert!(Duration::from_millis(500) <= took && took < Duration::from_secs(5), "{took:?}");
            server.server().signal("-CONT");
            assert!(matches!(read(&callers).await, Alone::NotTried), "the connection is in an unknown state");
        });
    }
}
