//! Handlers in tasks of their own: `message::in_tasks`.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream;
use idem::message::{Consumer, Disposition, in_tasks};
use idem::protocol::State;
use idem::{Error, MemoryStore, Operation, context};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::message_support::{Broker, Failure, Message, SCOPE};

const LONG: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn bodies_that_block_their_threads_make_progress_together() {
    let store = MemoryStore::new();
    let broker = Broker::new(&store);
    // Each body tells the other that it runs, and waits for the other without yielding its thread.
    let ((to_0, at_0), (to_1, at_1)) = (mpsc::channel(), mpsc::channel());
    let ends = Arc::new(Mutex::new(vec![(to_1, at_0), (to_0, at_1)]));
    let handler = |m: &Message| {
        let (store, order, ends) = (store.clone(), m.order.clone(), ends.clone());
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
    let summary = Consumer::new().run(stream::iter(broker.messages(&["0 ok", "1 ok"])), |m| {
        let (handled, met) = (noting(m), noted.clone());
        async move { handled.await.map(|both| met.lock().unwrap().push(both)) }
    });
    assert_eq!(summary.await.acknowledged, 2);
    assert_eq!(*met.lock().unwrap(), [true, true]);
    assert_eq!(*broker.recorded.borrow(), [Some(State::Completed); 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_in_its_task_is_settled_as_it_ended() {
    let store = MemoryStore::new();
    let broker = Broker::new(&store);
    let handler = |m: &Message| {
        let (store, order, what) = (store.clone(), m.order.clone(), m.what.clone());
        async move {
            let body = async || match what.as_str() {
                "panic" => panic!("a bug"),
                "transient" => Err(Failure::Transient),
                _ => Ok(context().unwrap().attempt()),
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let consumer = Consumer::new().concurrency(1).dispose(|_: &Failure, attempt, _| {
        assert_eq!(attempt, 1);
        Disposition::Acknowledge
    });
    let messages = broker.messages(&["0 panic", "1 transient", "2 ok", "2 ok"]);
    let summary = consumer.run(stream::iter(messages), in_tasks(handler)).await;
    assert_eq!((summary.panicked, summary.retried, summary.acknowledged, summary.replayed), (1, 1, 3, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_is_dropped_has_ended_before_its_message_is_given_back() {
    let store = MemoryStore::new();
    let broker = Broker::new(&store);
    let (begun, begins) = oneshot::channel();
    let begun = Arc::new(Mutex::new(Some(begun)));
    // The body has its thread when the grace is over, and yields it only some time later.
    let (go_on, goes_on) = mpsc::channel();
    let goes_on = Arc::new(Mutex::new(goes_on));
    let handler = |m: &Message| {
        let (store, order) = (store.clone(), m.order.clone());
        let (begun, goes_on) = (begun.clone(), goes_on.clone());
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
    let messages = stream::iter(broker.messages(&["0 ok"]));
    let running = consumer.run_until(shutdown, messages, in_tasks(handler));
    let mut running = std::pin::pin!(running);
    assert!(timeout(Duration::from_millis(300), &mut running).await.is_err(), "the body still runs");
    assert_eq!(broker.heard(), [""; 0]);
    go_on.send(()).unwrap();
    assert_eq!(running.await.given_back, 1);
    assert_eq!(
        (broker.heard(), broker.recorded.take()),
        (vec!["back 0".to_owned()], vec![Some(State::Released)])
    );
}
