//! Handlers in separate tasks: `message::in_tasks`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream;
use idem::message::{Consumer, Disposition, in_tasks};
use idem::protocol::State;
use idem::{Error, MemoryStore, Operation, context};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::message_support::{Broker, Failure, Message, SCOPE};

const LONG: Duration = Duration::from_secs(20);

/// Blocks its thread until the condition holds, or at most for `LONG`.
fn block_until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() && begin.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn bodies_that_block_their_threads_make_progress_together() {
    let (store, running) = (MemoryStore::new(), Arc::new(AtomicUsize::new(0)));
    let broker = Broker::new(&store);
    let handler = |m: &Message| {
        let (store, order, running) = (store.clone(), m.order.clone(), running.clone());
        async move {
            let body = async || {
                running.fetch_add(1, Ordering::SeqCst);
                block_until(|| running.load(Ordering::SeqCst) == 2);
                Ok::<_, Error>(())
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let begin = Instant::now();
    let messages = stream::iter(broker.messages(&["0 ok", "1 ok"]));
    let summary = Consumer::new().run(messages, in_tasks(handler)).await;
    assert!(begin.elapsed() < LONG, "one body waited for the other in vain");
    assert_eq!(summary.acknowledged, 2);
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
    // The body blocks its thread when the grace ends, and yields the thread only later.
    let (begun, yields) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let handler = |m: &Message| {
        let (store, order) = (store.clone(), m.order.clone());
        let (begun, yields) = (begun.clone(), yields.clone());
        async move {
            let body = async || {
                begun.notify_one();
                block_until(|| yields.load(Ordering::SeqCst));
                std::future::pending::<Result<(), Error>>().await
            };
            Operation::new(SCOPE).run(&store, order, body).await
        }
    };
    let consumer = Consumer::new().grace(Duration::ZERO);
    let messages = stream::iter(broker.messages(&["0 ok"]));
    let mut running = std::pin::pin!(consumer.run_until(begun.notified(), messages, in_tasks(handler)));
    assert!(timeout(Duration::from_millis(300), &mut running).await.is_err(), "the body still runs");
    assert_eq!(broker.heard(), [""; 0]);
    yields.store(true, Ordering::SeqCst);
    assert_eq!(running.await.given_back, 1);
    assert_eq!(
        (broker.heard(), broker.recorded.take()),
        (vec!["back 0".to_owned()], vec![Some(State::Released)])
    );
}
