//! Operations that come alone, on a connection in the runtime of their caller.

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use idem_mysql::MySqlStore;
use idem_runtime::Store as _;
use idem_runtime::protocol::{CompleteAnswer, Owner};
use idem_store_kit::own_runtime::own_runtime;
use idem_test_servers::{MariaDb, until};

use crate::support::{claim, completion, grant, key, record, replayed, store};

/// Calls until the connection of this runtime is there, and has prepared its statements.
async fn warm(store: &MySqlStore) {
    for number in 0..20 {
        record(store, &format!("warm {number}"), "done").await;
        assert!(replayed(store, &format!("warm {number}")).await.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_alone_does_not_need_the_stores_own_runtime() {
    let server = MariaDb::start();
    let store = store(&server.url()).await;
    warm(&store).await;
    let (ended, end) = std::sync::mpsc::channel::<()>();
    own_runtime().unwrap().spawn(async move {
        let _ = end.recv_timeout(Duration::from_secs(20));
    });
    record(&store, "order", "done").await;
    assert_eq!(replayed(&store, "order").await, Some(b"done".to_vec()));
    drop(ended);
}

#[test]
fn a_runtime_that_ends_during_an_operation_takes_nothing_with_it() {
    let mut server = MariaDb::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let (store, held) = first.block_on(async {
        let store = store(&server.url()).await;
        warm(&store).await;
        let held = grant(&store, "order").await;
        let (key, request) = (key("left"), claim(Owner::random()));
        let mut claiming = Box::pin(store.claim(&key, &request));
        server.server().signal("-STOP");
        let answered = claiming.as_mut().now_or_never();
        assert!(answered.is_none(), "{answered:?}");
        // Lets a worker send it.
        tokio::task::yield_now().await;
        drop(claiming);
        (store.clone(), held)
    });
    drop(first);
    server.server().signal("-CONT");
    runtime().block_on(async {
        let done = store.complete(&key("order"), &completion(held, "done")).await.unwrap();
        assert_eq!(done, CompleteAnswer::Done);
        assert!(replayed(&store, "order").await.is_some());
        record(&store, "next", "done").await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_delays_nothing() {
    let server = MariaDb::start();
    let store = store(&server.url()).await;
    let begin = Instant::now();
    for number in 0..20 {
        let name = format!("order {number}");
        record(&store, &name, "done").await;
        assert_eq!(replayed(&store, &name).await, Some(b"done".to_vec()));
    }
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_handle_closes_the_connection() {
    let server = MariaDb::start();
    let store = store(&server.url()).await;
    warm(&store).await;
    drop(store);
    let sessions =
        "select count(*) from information_schema.processlist where user = 'root' and id <> connection_id()";
    until("all sessions are closed", || server.sql(sessions) == "0");
    // Not one was cut off.
    assert_eq!(server.sql("show global status like 'Aborted_clients'"), "Aborted_clients|0");
}
