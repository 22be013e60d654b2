//! A connection in the caller's own runtime: the fast way, for what is asked where nothing blocks.
//!
//! A hop to the stores' own runtime and back costs as much as the server does. So claims and results take a
//! connection that the caller's runtime drives, if there is one; everything else, and whatever fails here,
//! takes the stores' own (see `link`). No timer of the caller's runtime is used, since a test may have
//! paused them: a watchdog in the stores' runtime breaks a lane that does not answer.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, RedisResult, Value};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;

use super::link::{Own, is_of_no_use};
use crate::store::own_runtime::own_runtime;

/// How many runtimes have one; more take turns. Ids of runtimes are not used again, so one that ended is
/// pushed out by and by.
const MOST: usize = 16;

/// How often the watchdog looks in the time that an answer may take.
const LOOKS: u32 = 4;

/// The lanes of one store.
#[derive(Default)]
pub(super) struct Lanes(Mutex<Vec<(Id, Slot)>>);

enum Slot {
    Connecting,
    Open(Arc<Lane>),
}

struct Lane {
    connection: MultiplexedConnection,
    asked: AtomicU64,
    answered: AtomicU64,
    broken: watch::Sender<bool>,
}

impl Lanes {
    fn slots(&self) -> MutexGuard<'_, Vec<(Id, Slot)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lane of the runtime we are in. Where there is none, one is opened for those who come later.
    fn here(self: &Arc<Self>, own: &Arc<Own>) -> Option<(Id, Arc<Lane>)> {
        let handle = Handle::try_current().ok()?;
        let id = handle.id();
        let mut slots = self.slots();
        match slots.iter().find(|(runtime, _)| *runtime == id) {
            Some((_, Slot::Open(lane))) => return Some((id, lane.clone())),
            Some((_, Slot::Connecting)) => return None,
            None => {}
        }
        if slots.len() >= MOST {
            slots.remove(0);
        }
        slots.push((id, Slot::Connecting));
        drop(slots);
        let (lanes, own) = (Arc::downgrade(self), own.clone());
        handle.spawn(async move {
            let _opening = Opening { lanes: lanes.clone(), id };
            let connected = own.connect_here().await;
            let answer_within = own.answer_within();
            drop(own);
            if let (Ok(connection), Some(lanes)) = (connected, lanes.upgrade()) {
                lanes.open(id, connection, answer_within);
            }
        });
        None
    }

    fn open(self: &Arc<Self>, id: Id, connection: MultiplexedConnection, answer_within: Duration) {
        let lane = Arc::new(Lane {
            connection,
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            broken: watch::Sender::new(false),
        });
        // Without a watchdog nobody would notice a server that fell silent.
        let Ok(own) = own_runtime() else { return };
        own.spawn(watch_over(Arc::downgrade(self), id, Arc::downgrade(&lane), answer_within));
        if let Some((_, slot)) = self.slots().iter_mut().find(|(runtime, _)| *runtime == id) {
            *slot = Slot::Open(lane);
        }
    }

    /// Takes the lane of a runtime out of use.
    fn close(&self, id: Id, lane: &Arc<Lane>) {
        self.slots().retain(|(runtime, slot)| {
            *runtime != id || !matches!(slot, Slot::Open(open) if Arc::ptr_eq(open, lane))
        });
        lane.broken.send_replace(true);
    }

    /// Asks once on the lane of the runtime we are in; nothing where there is none.
    pub(super) async fn ask(self: &Arc<Self>, own: &Arc<Own>, command: &Cmd) -> Option<RedisResult<Value>> {
        let (id, lane) = self.here(own)?;
        let answer = lane.ask(command).await;
        if answer.as_ref().is_err_and(is_of_no_use) {
            self.close(id, &lane);
        }
        Some(answer)
    }
}

/// Lets another try to open a lane if this one ends without.
struct Opening {
    lanes: Weak<Lanes>,
    id: Id,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(lanes) = self.lanes.upgrade() {
            lanes.slots().retain(|(id, slot)| *id != self.id || !matches!(slot, Slot::Connecting));
        }
    }
}

impl Lane {
    async fn ask(&self, command: &Cmd) -> RedisResult<Value> {
        let mut connection = self.connection.clone();
        let mut broken = self.broken.subscribe();
        self.asked.fetch_add(1, Ordering::Relaxed);
        let answer =
            match select(connection.req_packed_command(command), pin!(broken.wait_for(|broken| *broken)))
                .await
            {
                Either::Left((answer, _)) => answer.and_then(Value::extract_error),
                Either::Right(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
            };
        self.answered.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

/// Breaks a lane on which something was asked and nothing is answered any more.
///
/// An operation that was dropped leaves its count behind, so a lane may be broken that was only idle;
/// nobody waits on it then.
async fn watch_over(lanes: Weak<Lanes>, id: Id, lane: Weak<Lane>, answer_within: Duration) {
    let (mut silent, mut heard) = (0, 0);
    loop {
        tokio::time::sleep(answer_within / LOOKS).await;
        let Some(lane) = lane.upgrade() else { return };
        let answered = lane.answered.load(Ordering::Relaxed);
        let owed = lane.asked.load(Ordering::Relaxed) > answered;
        silent = if owed && answered == heard { silent + 1 } else { 0 };
        heard = answered;
        if silent > LOOKS {
            match lanes.upgrade() {
                Some(lanes) => lanes.close(id, &lane),
                None => drop(lane.broken.send_replace(true)),
            }
            return;
        }
    }
}
