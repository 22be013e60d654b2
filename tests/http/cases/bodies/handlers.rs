//! Handlers that outlive their client, block their thread or panic, and draining.

use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use idem_test_servers::web::Request;

use super::{Slow, layer};
use crate::framework::serve;
use crate::support::Runs;

#[tokio::test]
async fn a_handler_finishes_when_its_client_disconnects_and_the_next_client_has_its_response() {
    let slow = Slow::start().await;
    let client = Request::post("/pay", "k").send(slow.server.address).await;
    slow.until_begun().await;
    drop(client);
    assert_eq!(slow.server.ask(Request::post("/pay", "k")).await.problem(), "in-flight");
    assert_eq!(slow.running.count(), 1);
    slow.may_end.add_permits(1);
    slow.running.finished().await;
    let replay = slow.server.ask(Request::post("/pay", "k")).await;
    assert_eq!((&replay.body[..], replay.is_replay()), (&b"receipt 1"[..], true));
    assert_eq!(slow.ended.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn draining_waits_for_handlers_and_counts_those_that_still_run() {
    let slow = Slow::start().await;
    let client = Request::post("/pay", "k").send(slow.server.address).await;
    slow.until_begun().await;
    drop(client);
    let left = slow.running.drain(Duration::from_millis(50)).await;
    assert!(left.bodies >= 1 && !left.is_complete(), "{left:?}");
    slow.may_end.add_permits(1);
    let left = slow.running.drain(Duration::from_secs(10)).await;
    assert_eq!((slow.running.count(), slow.ended.load(Ordering::SeqCst)), (0, 1), "{left:?}");
    assert!(slow.server.ask(Request::post("/pay", "k")).await.is_replay(), "and it is recorded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_ends_when_it_lets_go_of_it() {
    let block = || std::thread::sleep(Duration::from_millis(60));
    let returns = move || async move {
        block();
        "paid"
    };
    let awaits = move || async move {
        block();
        std::future::pending::<&str>().await
    };
    let layer = layer(|builder| builder.handler_timeout(Duration::from_millis(20)));
    let router = Router::new().route("/returns", post(returns)).route("/awaits", post(awaits));
    let server = serve(router, layer).await;
    // The handler has returned its response by then, and discarding it would gain nothing.
    assert_eq!(server.ask(Request::post("/returns", "k")).await.status, 200);
    assert!(server.ask(Request::post("/returns", "k")).await.is_replay());
    assert_eq!(server.ask(Request::post("/awaits", "l")).await.problem(), "handler-failed");
}

#[tokio::test]
async fn a_panic_is_500_and_the_key_is_free_again() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let number = count.run();
        assert_ne!(number, 1, "the first one panics");
        number.to_string()
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, layer(|builder| builder)).await;
    let failed = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((failed.status, failed.problem()), (500, "handler-failed".into()));
    assert!(failed.json()["detail"].as_str().unwrap().contains("Send the same request"));
    let again = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((again.status, &again.body[..], again.is_replay()), (200, &b"2"[..], false));
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
}
