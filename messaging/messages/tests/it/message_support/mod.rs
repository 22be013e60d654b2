//! A broker that records its requests and their times, and a shop whose orders say how their calls end.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::convert::Infallible;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{self, Stream, StreamExt as _};
use idem::message::{Consumer, DeadLetter, Delivery, Summary};
use idem::protocol::State;
use idem::{Error, KeyBuilder, MemoryStore, Operation, RecordKey, ResultRules, Scope, Store};
use idem_testing::FaultStore;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

pub const SCOPE: &str = "test.consumer";
pub const LEASE: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    #[error("later")]
    Transient,
    #[error("never")]
    Final,
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] Error),
}

/// A request that the broker got: the seconds since the broker's start, and its text, such as `ack a1` for the
/// message of the order `a1`.
pub type Told = (u64, String);

/// A broker in the test's own task, so it need not be `Send`.
#[derive(Clone)]
pub struct Broker {
    begin: Instant,
    told: Rc<RefCell<Vec<Told>>>,
    /// The requests that fail, and how.
    failing: Rc<RefCell<HashMap<String, Failing>>>,
    /// The state of the record of each message when it was acknowledged or given back.
    pub recorded: Rc<RefCell<Vec<Option<State>>>>,
    /// The number of deliveries that the broker reports for each message.
    pub deliveries: Rc<Cell<Option<u32>>>,
    /// The last dead letter.
    pub letter: Rc<RefCell<Option<DeadLetter>>>,
    /// Whether a message stays with this worker if it could not be settled.
    pub holds: Rc<Cell<bool>>,
    /// Whether the consumer keeps a message for its retry: the answer of [`Delivery::retries_in_place`].
    pub in_place: Rc<Cell<bool>>,
    store: MemoryStore,
}

#[derive(Clone, Copy)]
pub enum Failing {
    Error,
    Hang,
    Panic,
}

pub struct Message {
    pub order: String,
    /// How the message's call ends: see [`Shop::ship`].
    pub what: String,
    pub group: Option<String>,
    broker: Broker,
}

impl Broker {
    pub fn new(store: &MemoryStore) -> Self {
        Self {
            begin: Instant::now(),
            store: store.clone(),
            told: Rc::default(),
            failing: Rc::default(),
            recorded: Rc::default(),
            deliveries: Rc::default(),
            letter: Rc::default(),
            holds: Rc::default(),
            in_place: Rc::default(),
        }
    }

    /// A message of this form: `order what [group]`.
    pub fn message(&self, text: &str) -> Message {
        let mut words = text.split(' ').map(str::to_owned);
        let (order, what) = (words.next().unwrap(), words.next().unwrap());
        Message { order, what, group: words.next(), broker: self.clone() }
    }

    pub fn messages(&self, texts: &[&str]) -> Vec<Result<Message, Infallible>> {
        texts.iter().map(|text| Ok(self.message(text))).collect()
    }

    /// A stream that never ends by itself.
    pub fn endless(&self, texts: &[&str]) -> impl Stream<Item = Result<Message, Infallible>> + use<> {
        stream::iter(self.messages(texts)).chain(stream::pending())
    }

    /// Makes each request fail whose text is `what`.
    pub fn fail(&self, what: &str, failing: Failing) {
        self.failing.borrow_mut().insert(what.to_owned(), failing);
    }

    /// Makes the requests with the text `what` succeed again.
    pub fn heal(&self, what: &str) {
        self.failing.borrow_mut().remove(what);
    }

    async fn tell(&self, what: String) -> Result<(), String> {
        let at = self.begin.elapsed().as_secs();
        let failing = self.failing.borrow().get(&what).copied();
        self.told.borrow_mut().push((at, what));
        match failing {
            None => Ok(()),
            Some(Failing::Error) => Err("the connection is gone".to_owned()),
            Some(Failing::Hang) => pending().await,
            Some(Failing::Panic) => panic!("a bug in the glue"),
        }
    }

    /// All requests that the broker got since the last look, in order.
    pub fn told(&self) -> Vec<Told> {
        self.told.take()
    }

    /// As [`told`](Self::told), without the times.
    pub fn heard(&self) -> Vec<String> {
        self.told().into_iter().map(|(_, what)| what).collect()
    }
}

impl Message {
    async fn look(&self) {
        let record = self.broker.store.get(&key(&self.order)).await.unwrap();
        self.broker.recorded.borrow_mut().push(record.map(|record| record.state));
    }
}

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Expected requests, in the form of [`Broker::told`].
pub fn told(what: &[(u64, &str)]) -> Vec<Told> {
    what.iter().map(|&(at, what)| (at, what.to_owned())).collect()
}

pub fn key(order: &str) -> RecordKey {
    RecordKey::new(Scope::new(SCOPE).unwrap(), KeyBuilder::new().part(order).finish().unwrap())
}

impl Delivery for Message {
    type Error = String;

    async fn acknowledge(&self) -> Result<(), String> {
        self.look().await;
        self.broker.tell(format!("ack {}", self.order)).await
    }

    async fn retry(&self, after: Duration) -> Result<(), String> {
        self.broker.tell(format!("retry {} {}s", self.order, after.as_secs())).await
    }

    async fn reject(&self, letter: &DeadLetter) -> Result<(), String> {
        *self.broker.letter.borrow_mut() = Some(letter.clone());
        self.broker.tell(format!("reject {} {}", self.order, letter.reason.as_str())).await
    }

    async fn give_back(&self) -> Result<(), String> {
        self.look().await;
        self.broker.tell(format!("back {}", self.order)).await
    }

    async fn extend(&self) -> Result<(), String> {
        self.broker.tell(format!("extend {}", self.order)).await
    }

    fn destination(&self) -> Option<String> {
        Some("orders".to_owned())
    }

    fn is_held(&self) -> bool {
        self.broker.holds.get()
    }

    fn retries_in_place(&self) -> bool {
        self.broker.in_place.get()
    }

    fn deliveries(&self) -> Option<u32> {
        self.broker.deliveries.get()
    }

    fn group(&self) -> Option<String> {
        assert!(self.group.as_deref() != Some("unknowable"), "a bug in the glue");
        self.group.clone()
    }
}

/// Rules with a `terminal` function.
pub type Rules = ResultRules<String, Failure>;

/// Ships the orders of a broker, and remembers which orders it began. The test chooses the faults of the
/// shop's store.
pub struct Shop {
    pub store: FaultStore<MemoryStore>,
    pub broker: Broker,
    pub operation: Operation<Rules>,
    ran: RefCell<Vec<String>>,
}

impl Shop {
    pub fn new() -> Self {
        Self::of(Operation::new(SCOPE))
    }

    pub fn of(operation: Operation) -> Self {
        let operation = operation.lease(LEASE).terminal(is_final as fn(&Failure) -> bool);
        let store = MemoryStore::new();
        let broker = Broker::new(&store);
        Self { store: FaultStore::new(store), broker, operation, ran: RefCell::default() }
    }

    pub async fn consume(&self, consumer: Consumer<Failure>, texts: &[&str]) -> Summary {
        consumer.run(stream::iter(self.broker.messages(texts)), |m| self.ship(m)).await
    }

    /// Ships these messages, and waits for more, until `end` seconds have passed.
    pub async fn consume_until(&self, end: u64, consumer: Consumer<Failure>, texts: &[&str]) -> Summary {
        let shutdown = sleep(Duration::from_secs(end));
        consumer.run_until(shutdown, self.broker.endless(texts), |m| self.ship(m)).await
    }

    /// Runs a body of one second that ends as `what` says: `ok`, `final`, `panic`, `transient`, or `twice`,
    /// which succeeds at the second attempt. If `what` is a number, the body takes that many seconds and
    /// succeeds.
    pub fn ship(&self, message: &Message) -> impl Future<Output = Result<String, Failure>> + use<'_> {
        self.ship_order(message.order.clone(), message.what.clone())
    }

    /// As [`ship`](Self::ship), for an order without a message.
    pub fn ship_order(
        &self,
        order: String,
        what: String,
    ) -> impl Future<Output = Result<String, Failure>> + use<'_> {
        let key = order.clone();
        let body = async move || {
            self.ran.borrow_mut().push(order.clone());
            sleep(Duration::from_secs(what.parse().unwrap_or(1))).await;
            match what.as_str() {
                "transient" => Err(Failure::Transient),
                "final" => Err(Failure::Final),
                "panic" => panic!("a bug"),
                "twice" if idem::context().unwrap().attempt() < 2 => Err(Failure::Transient),
                _ => Ok(order),
            }
        };
        self.operation.run(&self.store, key, body)
    }

    /// The orders whose bodies have begun since the last look, in order.
    pub fn ran(&self) -> Vec<String> {
        self.ran.take()
    }
}

fn is_final(failure: &Failure) -> bool {
    matches!(failure, Failure::Final)
}
