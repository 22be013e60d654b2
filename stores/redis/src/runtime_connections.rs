//! A connection for each calling runtime. It is faster than the stores' own connection, unless something
//! blocks that runtime.
//!
//! A switch to the stores' own runtime and back takes as much time as the server needs for a request. So most
//! requests, above all claims and results, use a connection that the caller's runtime drives, if there is
//! one. Renewals, releases, retries, `forget`, `list` and `inspect` use the stores' own connection (see
//! `connection`). This code uses no timer of the caller's runtime, because a test may have paused its time.
//! Instead, a watchdog in the stores' runtime breaks a connection that does not answer.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::{Either, select};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;

use super::connection::{Reconnecting, is_of_no_use, is_too_old, may_be_demoted};
use super::pipelined::Pipelined;
use super::scripts::Request;
use idem_store_kit::own_runtime::{entered, own_runtime};

/// How many runtimes can have a connection. Any further runtimes use the stores' own connection. They do not
/// take the place of another runtime. Otherwise, with one runtime too many, each operation would open a new
/// connection.
const MOST: usize = 256;

/// How long a connection may be idle before it is closed. This also closes the connections of runtimes that
/// ended.
const IDLE: Duration = Duration::from_secs(60);

/// How many times the watchdog checks within the time that an answer may take.
const LOOKS: u32 = 4;

/// The connections of one store.
#[derive(Default)]
pub(super) struct RuntimeConnections {
    /// `None` while a connection is being opened.
    slots: Mutex<HashMap<Id, Option<Arc<Pipelined>>>>,
}

impl RuntimeConnections {
    fn slots(&self) -> MutexGuard<'_, HashMap<Id, Option<Arc<Pipelined>>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of the current runtime. If this connection is missing or too old, starts to open a new
    /// one for later operations. If the connection is missing and [`MOST`] runtimes already have one, opens
    /// none.
    fn here(self: &Arc<Self>, own: &Arc<Reconnecting>) -> Option<(Id, Arc<Pipelined>)> {
        let handle = Handle::try_current().ok()?;
        let id = handle.id();
        let mut slots = self.slots();
        match slots.get(&id) {
            Some(Some(connection)) if !is_too_old(connection.opened) => {
                return Some((id, connection.clone()));
            }
            Some(None) => return None,
            None if slots.len() >= MOST => return None,
            _ => {}
        }
        slots.insert(id, None);
        drop(slots);
        let (connections, own) = (Arc::downgrade(self), own.clone());
        handle.spawn(async move {
            let _opening = Opening { connections: connections.clone(), id };
            let answer_within = own.answer_within;
            let Some(connection) = in_time(own.source.connect(None), answer_within).await else { return };
            drop(own);
            if let Some(connections) = connections.upgrade() {
                connections.open(id, connection, answer_within);
            }
        });
        None
    }

    fn open(self: &Arc<Self>, id: Id, connection: MultiplexedConnection, answer_within: Duration) {
        let connection = Arc::new(Pipelined::new(connection));
        // Without the watchdog, nothing would notice a server that no longer answers.
        let Ok(own) = own_runtime() else { return };
        own.spawn(watch_over(Arc::downgrade(self), id, Arc::downgrade(&connection), answer_within));
        if let Some(slot) = self.slots().get_mut(&id) {
            *slot = Some(connection);
        }
    }

    /// Takes the connection of a runtime out of use. Running requests still get their answers.
    fn retire(&self, id: Id, connection: &Arc<Pipelined>) {
        let mut slots = self.slots();
        if matches!(slots.get(&id), Some(Some(open)) if Arc::ptr_eq(open, connection)) {
            slots.remove(&id);
        }
    }

    /// Sends a request once on the connection of the current runtime. Returns `None` if this runtime has no
    /// open connection.
    pub(super) fn ask(
        self: &Arc<Self>,
        own: &Arc<Reconnecting>,
        request: &Request,
    ) -> impl Future<Output = Option<RedisResult<Value>>> + Send {
        async move {
            let (id, connection) = self.here(own)?;
            let answer = connection.ask(request).await;
            if let Err(error) = &answer {
                let is_of_no_use = is_of_no_use(error);
                if is_of_no_use || may_be_demoted(error, connection.opened) {
                    self.retire(id, &connection);
                }
                if is_of_no_use {
                    connection.break_off();
                }
            }
            Some(answer)
        }
    }
}

/// An attempt to open a connection. If the attempt has failed when this value is dropped, a later operation
/// may try again.
struct Opening {
    connections: Weak<RuntimeConnections>,
    id: Id,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some(connections) = self.connections.upgrade() {
            let mut slots = connections.slots();
            if matches!(slots.get(&self.id), Some(None)) {
                slots.remove(&self.id);
            }
        }
    }
}

/// The connection, if it is opened in time by the clock of the stores' own runtime.
async fn in_time(
    connecting: impl Future<Output = RedisResult<MultiplexedConnection>>,
    time: Duration,
) -> Option<MultiplexedConnection> {
    let late = entered(Box::pin(async move {
        tokio::time::sleep(time).await;
        Ok(())
    }));
    match select(pin!(connecting), pin!(late)).await {
        Either::Left((connection, _)) => connection.ok(),
        Either::Right(_) => None,
    }
}

/// Breaks a connection on which requests run and no answers arrive, and closes an idle one.
///
/// A dropped operation still counts as running. So an idle connection may be broken too, but then nobody
/// waits for it.
async fn watch_over(
    connections: Weak<RuntimeConnections>,
    id: Id,
    connection: Weak<Pipelined>,
    answer_within: Duration,
) {
    let (mut silent, mut heard) = (0, 0);
    let (mut seen, mut used) = (0, Instant::now());
    loop {
        tokio::time::sleep(answer_within / LOOKS).await;
        let Some(connection) = connection.upgrade() else { return };
        let (sent, answered) = connection.counts();
        silent = if sent > answered && answered == heard { silent + 1 } else { 0 };
        heard = answered;
        if sent != seen {
            (seen, used) = (sent, Instant::now());
        }
        let is_silent = silent > LOOKS;
        if let Some(connections) = connections.upgrade()
            && (is_silent || used.elapsed() >= IDLE)
        {
            connections.retire(id, &connection);
        }
        // A retired connection is watched until the last operation that uses it has ended.
        if is_silent {
            return connection.break_off();
        }
    }
}
