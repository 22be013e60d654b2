//! Handlers in tasks of their own: `message::in_tasks`.

use crate::message_support;

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use idem::message::{Consumer, DeadLetter, Delivery, Disposition, in_tasks};
use idem::protocol::State;
use idem::{Error, KeyBuilder, MemoryStore, Operation, RecordKey, Scope, Store, context};
use tokio::sync::oneshot;
use tokio::time::timeout;

use message_support::Failure;

const SCOPE: &str = "test.tasks";
const LONG: Duration = Duration::from_secs(20);

/// What the broker was told, with the state of the message's record then.
type Told = Arc<Mutex<Vec<(&'static str, Option<State>)>>>;

struct Message {
    order: u32,
    store: MemoryStore,
    told: Told,
}

impl Message {
    async fn tell(&self, what: &'static str) -> Result<(), Error> {
        let key = KeyBuilder::new().part(&self.order).finish().unwrap();
        let record = self.store.get(&RecordKey::new(Scope::new(SCOPE).unwrap(), key)).await.unwrap();
        self.told.lock().unwrap().push((what, record.map(|record| record.state)));
        Ok(())
    }
}

impl Delivery for Message {
    type Error = Error;

    async fn acknowledge(&self) -> Result<(), Error> {
        self.tell("ack").await
    }

    async fn retry(&self, _: Duration) -> Result<(), Error> {
        self.tell("retry").await
    }

    async fn reject(&self, _: &DeadLetter) -> Result<(), Error> {
        self.tell("reject").await
    }

    async fn give_back(&self) -> Result<(), Error> {
        self.tell("back").await
    }
}

fn messages(store: &MemoryStore, told: &Told, count: u32) -> Vec<Result<Message, Error>> {
    (0..count).map(|order| Ok(Message { order, store: store.clone(), told: told.clone() })).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn bodies_that_block_their_threads_make_progress_together() {
    let (store, told) = (MemoryStore::new(), Told::default());
    // Each body tells the other that it runs, and waits for the other without yielding its thread.
    let ((to_0, at_0), (to_1, at_1)) = (mpsc::channel(), mpsc::channel());
    let ends = Arc::new(Mutex::new(vec![(to_1, at_0), (to_0, at_1)]));
    let handler = |m: &Message| {
        let (store, order, ends) = (store.clone(), m.order, ends.clone());
        async move {
            let body = async || {
                let (other, own) = ends.lock().unwrap().pop().unwrap();
                other.send(()).unwrap();
                Ok::<_, Error>(own.recv_timeout(LONG).is_ok())
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let met = Arc::new(Mutex::new(Vec::new()));
    let noted = met.clone();
    let noting = in_tasks(handler);
    let summary = Consumer::new().run(stream::iter(messages(&store, &told, 2)), |m| {
        let (handled, met) = (noting(m), noted.clone());
        async move { handled.await.map(|both| met.lock().unwrap().push(both)) }
    });
    assert_eq!(summary.await.acknowledged, 2);
    assert_eq!(*met.lock().unwrap(), [true, true]);
    assert_eq!(*told.lock().unwrap(), [("ack", Some(State::Completed)); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_in_its_task_is_settled_as_it_ended() {
    let (store, told) = (MemoryStore::new(), Told::default());
    let handler = |m: &Message| {
        let (store, order) = (store.clone(), m.order);
        async move {
            let body = async || match order {
                0 => panic!("a bug"),
                1 => Err(Failure::Transient),
                _ => Ok(context().unwrap().attempt()),
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let consumer = Consumer::new().concurrency(1).dispose(|_: &Failure, attempt, _| {
        assert_eq!(attempt, 1);
        Disposition::Acknowledge
    });
    let mut twice = messages(&store, &told, 3);
    twice.extend(messages(&store, &told, 3).pop());
    let summary = consumer.run(stream::iter(twice), in_tasks(handler)).await;
    assert_eq!((summary.panicked, summary.retried, summary.acknowledged, summary.replayed), (1, 1, 3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_dropped_has_ended_before_its_message_is_given_back() {
    let (store, told) = (MemoryStore::new(), Told::default());
    let (begun, begins) = oneshot::channel();
    let begun = Arc::new(Mutex::new(Some(begun)));
    // The body has its thread when the grace is over, and yields it only some time later.
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let handler = |m: &Message| {
        let (store, order, begun, goes_on) = (store.clone(), m.order, begun.clone(), goes_on.clone());
        async move {
            let body = async || {
                begun.lock().unwrap().take().unwrap().send(()).unwrap();
                let _ = goes_on.lock().unwrap().recv_timeout(LONG);
                std::future::pending::<Result<(), Error>>().await
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let shutdown = async {
        begins.await.unwrap();
    };
    let consumer = Consumer::new().grace(Duration::ZERO);
    let messages = stream::iter(messages(&store, &told, 1));
    let running = consumer.run_until(shutdown, messages, in_tasks(handler));
    let mut running = std::pin::pin!(running);
    assert!(timeout(Duration::from_millis(300), &mut running).await.is_err(), "the body still runs");
    assert_eq!(*told.lock().unwrap(), []);
    go_on.send(()).unwrap();
    assert_eq!(running.await.given_back, 1);
    assert_eq!(*told.lock().unwrap(), [("back", Some(State::Released))]);
}
