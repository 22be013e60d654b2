//! Requests whose key is in flight: how long they wait.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use idem::MemoryStore;
use idem::http::Builder;
use idem_test_servers::web::{Answer, Request};
use tokio::sync::Semaphore;

use super::builder;
use crate::framework::{Server, serve};

/// A server whose handler waits until the test lets it end.
async fn slow(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
) -> (Server, Arc<Semaphore>, Arc<Semaphore>) {
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (seen, gate) = (begun.clone(), may_end.clone());
    let handler = move || async move {
        seen.add_permits(1);
        gate.acquire().await.unwrap().forget();
        "done"
    };
    let layer = options(builder()).build().unwrap();
    (serve(Router::new().route("/pay", post(handler)), layer).await, begun, may_end)
}

#[tokio::test]
async fn a_duplicate_waits_for_the_response_where_the_policy_says_so() {
    let (server, begun, may_end) = slow(|builder| builder.wait(Duration::from_secs(20))).await;
    let mut first = Request::post("/pay", "k").send(server.address).await;
    begun.acquire().await.unwrap().forget();
    let mut second = Request::post("/pay", "k").send(server.address).await;
    let other = server.ask(Request::post("/pay", "k").body("other")).await;
    assert_eq!(other.problem(), "key-reused", "it need not wait to be refused");
    may_end.add_permits(1);
    assert!(!Answer::read(&mut first).await.is_replay());
    let second = Answer::read(&mut second).await;
    assert_eq!((&second.body[..], second.is_replay()), (&b"done"[..], true));
}

#[tokio::test]
async fn a_wait_that_is_too_short_ends_as_in_flight_and_a_waiter_that_leaves_starts_nothing() {
    let (server, begun, may_end) = slow(|builder| builder.wait(Duration::from_millis(50))).await;
    let mut first = Request::post("/pay", "k").send(server.address).await;
    begun.acquire().await.unwrap().forget();
    let refused = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    drop(Request::post("/pay", "k").send(server.address).await);
    may_end.add_permits(1);
    assert_eq!(Answer::read(&mut first).await.body, b"done");
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
    assert_eq!(begun.available_permits(), 0);
}

#[tokio::test]
async fn the_retry_of_a_broken_connection_is_answered_when_the_handler_is_done() {
    let (server, begun, may_end) = slow(|builder| builder).await;
    drop({
        let first = Request::post("/pay", "k").send(server.address).await;
        begun.acquire().await.unwrap().forget();
        first
    });
    let mut second = Request::post("/pay", "k").send(server.address).await;
    let refused = tokio::time::timeout(Duration::from_millis(300), Answer::read(&mut second)).await;
    assert!(refused.is_err(), "it waits: {:?}", refused.map(|answer| answer.status));
    may_end.add_permits(1);
    let second = Answer::read(&mut second).await;
    assert_eq!((&second.body[..], second.is_replay()), (&b"done"[..], true));
}
