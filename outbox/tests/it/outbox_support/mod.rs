//! An outbox on a server that the test starts, and a publisher that records messages and follows a plan.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use idem_outbox::{Message, Outbox, PublishError, Publisher, Relay};
use idem_test_servers::Postgres;
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgPool, Postgres as Db, Transaction};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

pub(crate) struct Bed {
    pub(crate) server: Postgres,
    pub(crate) pool: PgPool,
    pub(crate) outbox: Outbox,
}

impl Bed {
    pub(crate) async fn open() -> Self {
        Self::on(Postgres::start()).await
    }

    pub(crate) async fn on(server: Postgres) -> Self {
        let pool = PgPoolOptions::new().max_connections(20).connect(&server.url()).await.unwrap();
        let outbox = Outbox::from_pool(&pool).await.unwrap();
        Self { server, pool, outbox }
    }

    pub(crate) async fn begin(&self) -> Transaction<'static, Db> {
        self.pool.begin().await.unwrap()
    }

    /// Enqueues a message in a new transaction, and returns the message's id.
    pub(crate) async fn send(&self, topic: &str, payload: &str) -> String {
        let mut tx = self.begin().await;
        let id = self.outbox.enqueue(&mut tx, topic, payload).await.unwrap();
        tx.commit().await.unwrap();
        id.to_string()
    }

    pub(crate) fn count(&self, condition: &str) -> usize {
        self.server
            .sql(&format!("select count(*) from idem_outbox_readable where {condition}"))
            .parse()
            .unwrap()
    }

    pub(crate) fn sql(&self, statement: &str) {
        let _ = self.server.sql(statement);
    }

    /// A relay with short pauses, but a long lease and publish timeout, so that neither ends on a busy
    /// machine.
    pub(crate) fn relay(&self, publisher: impl Into<Broker>) -> Relay<Broker> {
        Relay::new(self.outbox.clone(), publisher.into())
            .publish_timeout(Duration::from_secs(30))
            .poll_interval(Duration::from_millis(200))
            .backoff(Duration::from_millis(10), Duration::from_millis(50))
    }

    /// Ends all leases now, so that another relay can take over their topics.
    pub(crate) fn end_leases(&self) {
        self.sql("update idem_outbox_topics set lease_until = 0 where owner is not null");
    }

    pub(crate) fn run(&self, publisher: impl Into<Broker>) -> Running {
        Running::start(self.relay(publisher))
    }
}

/// A relay that runs in a task.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) fn start<P: Publisher + 'static>(relay: Relay<P>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let run = relay.run(async { drop(stopped.await) });
        Self { stop, task: tokio::spawn(async { run.await.unwrap() }) }
    }

    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.unwrap();
    }

    /// Drops the relay in the middle of its work.
    pub(crate) async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

/// What a publisher does with a message.
pub(crate) enum Then {
    Take,
    Unavailable,
    Fail,
    Poison,
    Panic,
    /// Takes the message, and never returns.
    Hang,
    /// Takes the message, and returns after a notification.
    Wait(Arc<Notify>),
}

/// A message as the broker saw it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) id: String,
    pub(crate) sequence: i64,
    pub(crate) attempt: u32,
}

type Plan = Box<dyn Fn(&Seen) -> Then + Send + Sync>;

/// A broker that follows a plan. It records the offered messages and the taken messages.
#[derive(Clone)]
pub(crate) struct Broker(Arc<Memory>);

struct Memory {
    offered: Mutex<Vec<Seen>>,
    taken: Mutex<Vec<Seen>>,
    plan: Plan,
}

impl Broker {
    pub(crate) fn new(plan: impl Fn(&Seen) -> Then + Send + Sync + 'static) -> Self {
        Self(Arc::new(Memory { offered: Mutex::default(), taken: Mutex::default(), plan: Box::new(plan) }))
    }

    /// A broker that takes every message.
    pub(crate) fn willing() -> Self {
        Self::new(|_| Then::Take)
    }

    pub(crate) fn offered(&self) -> Vec<Seen> {
        self.0.offered.lock().unwrap().clone()
    }

    pub(crate) fn taken(&self) -> Vec<Seen> {
        self.0.taken.lock().unwrap().clone()
    }

    /// The payloads of the taken messages, in order.
    pub(crate) fn payloads(&self) -> Vec<String> {
        self.taken().into_iter().map(|seen| seen.payload).collect()
    }

    pub(crate) async fn until_taken(&self, count: usize) {
        wait(&format!("{count} are taken"), || self.0.taken.lock().unwrap().len() >= count).await;
    }
}

impl Publisher for Broker {
    async fn publish(&self, message: &Message) -> Result<(), PublishError> {
        let seen = Seen {
            topic: message.topic.to_string(),
            payload: String::from_utf8(message.payload.to_vec()).unwrap(),
            id: message.id.to_string(),
            sequence: message.sequence,
            attempt: message.attempt,
        };
        self.0.offered.lock().unwrap().push(seen.clone());
        let then = (self.0.plan)(&seen);
        if matches!(then, Then::Take | Then::Hang | Then::Wait(_)) {
            self.0.taken.lock().unwrap().push(seen);
        }
        match then {
            Then::Take => Ok(()),
            Then::Unavailable => Err(PublishError::unavailable("the broker is away")),
            Then::Fail => Err(PublishError::failed("the broker did not take it")),
            Then::Poison => Err(PublishError::poison("the broker never takes this")),
            Then::Panic => panic!("the publisher panics"),
            Then::Hang => std::future::pending().await,
            Then::Wait(gate) => {
                gate.notified().await;
                Ok(())
            }
        }
    }
}

/// Returns once `condition` holds.
pub(crate) async fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < Duration::from_secs(120), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// Returns once the query's result is `expected`.
pub(crate) async fn wait_for_sql(server: &Postgres, statement: &str, expected: &str) {
    wait(&format!("{statement} is {expected}"), || server.sql(statement) == expected).await;
}

/// Asserts that the first deliveries of each topic were in order, that repeats had the id of the first
/// delivery, and that `count` messages came.
pub(crate) fn check_first_deliveries(taken: &[Seen], count: usize) {
    let mut ids: BTreeMap<i64, &str> = BTreeMap::new();
    let mut last: BTreeMap<&str, i64> = BTreeMap::new();
    for seen in taken {
        if let Some(id) = ids.insert(seen.sequence, &seen.id) {
            assert_eq!(id, seen.id);
            continue;
        }
        let last = last.entry(&seen.topic).or_default();
        assert!(*last < seen.sequence, "{seen:?} came after {last}");
        *last = seen.sequence;
    }
    assert_eq!(ids.len(), count);
}
