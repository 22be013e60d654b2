//! Tests of the HTTP layer over real sockets: responses that do not answer the request, such as a 401; crashes; and
//! clients that it keeps apart.

use crate::framework::serve;
use crate::support;

use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request as AxumRequest;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idem::http::{Builder, IdempotencyLayer, Recording};
use idem::{MemoryStore, OnCrash};
use idem_test_servers::web::Request;
use support::Runs;

pub(crate) fn builder() -> Builder<MemoryStore> {
    IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients()
}

#[tokio::test]
async fn a_client_that_had_to_authenticate_first_is_answered_under_the_same_key() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move |headers: HeaderMap| async move {
        match headers.get("authorization").map(|token| token.as_bytes()) {
            Some(b"good") => (StatusCode::CREATED, format!("receipt {}", count.run())).into_response(),
            Some(b"other") => StatusCode::FORBIDDEN.into_response(),
            _ => (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]).into_response(),
        }
    };
    let server = serve(Router::new().route("/pay", post(handler)), builder().build().unwrap()).await;
    let ask = |token: &str| Request::post("/pay", "k").header("Authorization", token);
    for _ in 0..2 {
        let refused = server.ask(ask("bad")).await;
        assert_eq!((refused.status, refused.text("www-authenticate")), (401, Some("Bearer")));
        assert!(!refused.is_replay());
    }
    assert_eq!(server.ask(ask("other")).await.status, 403);
    assert_eq!(server.ask(ask("good")).await.status, 201);
    assert!(server.ask(ask("good")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_challenge_is_kept_with_the_response_that_it_belongs_to() {
    let handler = || async { (StatusCode::UNAUTHORIZED, [("www-authenticate", "Bearer")]) };
    let layer = builder().recording(|_| Some(Recording::Keep)).build().unwrap();
    let server = serve(Router::new().route("/pay", post(handler)), layer).await;
    server.ask(Request::post("/pay", "k")).await;
    let again = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((again.is_replay(), again.text("www-authenticate")), (true, Some("Bearer")));
}

/// An inner layer that ends a handler that takes longer than 50 ms.
async fn timed(request: AxumRequest, next: axum::middleware::Next) -> Response {
    match tokio::time::timeout(Duration::from_millis(50), next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

#[tokio::test]
async fn a_handler_that_a_layer_inside_ended_runs_again_and_knows_it_or_is_in_doubt_by_the_policy() {
    for (on_crash, status, expected) in [(OnCrash::Rerun, 200, 2), (OnCrash::InDoubt, 409, 1)] {
        let runs = Runs::default();
        let count = runs.clone();
        let handler = move || async move {
            if count.run() == 1 {
                std::future::pending::<()>().await;
            }
            idem::context().unwrap().recovered().to_string()
        };
        let router = Router::new().route("/pay", post(handler)).layer(axum::middleware::from_fn(timed));
        let server = serve(router, builder().on_crash(on_crash).build().unwrap()).await;
        assert_eq!(server.ask(Request::post("/pay", "k")).await.status, 408);
        let again = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((again.status, runs.count()), (status, expected));
        assert!(if status == 200 { again.body == b"true" } else { again.problem() == "in-doubt" });
    }
}

#[tokio::test]
async fn a_response_that_broke_off_is_in_doubt_where_the_policy_says_so() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        count.run();
        let parts = [
            Ok::<_, std::io::Error>(Bytes::from_static(b"half")),
            Err(std::io::ErrorKind::BrokenPipe.into()),
        ];
        Response::new(Body::from_stream(futures_util::stream::iter(parts)))
    };
    let layer = builder().on_crash(OnCrash::InDoubt).build().unwrap();
    let server = serve(Router::new().route("/pay", post(handler)), layer).await;
    drop(Request::post("/pay", "k").send(server.address).await);
    let refused = loop {
        let answer = server.ask(Request::post("/pay", "k")).await;
        if answer.problem() != "in-flight" {
            break answer;
        }
    };
    assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn an_error_of_the_server_is_in_doubt_where_the_policy_says_so_unless_it_says_that_nothing_was_done() {
    let handler = || async { StatusCode::BAD_GATEWAY };
    for (released, expected) in [(false, 409), (true, 502)] {
        let layer = builder().on_crash(OnCrash::InDoubt);
        let layer = if released { layer.recording(|_| Some(Recording::Release)) } else { layer };
        let router = Router::new().route("/pay", post(handler));
        let server = serve(router, layer.build().unwrap()).await;
        assert_eq!(server.ask(Request::post("/pay", "k")).await.status, 502);
        assert_eq!(server.ask(Request::post("/pay", "k")).await.status, expected);
    }
}

#[tokio::test]
async fn a_failure_of_grpc_is_not_kept_though_its_status_is_200() {
    let handler = || async { ([("content-type", "application/grpc"), ("grpc-status", "14")], "") };
    let server = serve(Router::new().route("/pay", post(handler)), builder().build().unwrap()).await;
    server.ask(Request::post("/pay", "k")).await;
    assert!(!server.ask(Request::post("/pay", "k")).await.is_replay());
}

#[test]
fn a_layer_that_does_not_say_whose_keys_they_are_is_not_built() {
    let refused = IdempotencyLayer::builder(MemoryStore::new()).build().map(drop).unwrap_err().to_string();
    assert!(refused.contains(".tenant(") && refused.contains(".shared_by_all_clients()"), "{refused}");
    let apart = IdempotencyLayer::builder(MemoryStore::new()).tenant(|_| Some("a".to_owned()));
    assert!(apart.build().is_ok());
    assert!(builder().max_running(0).build().is_err());
}

#[tokio::test]
async fn no_more_handlers_run_than_may_though_their_clients_are_gone_and_a_refused_key_is_free() {
    let (runs, may_end) = (Runs::default(), std::sync::Arc::new(tokio::sync::Semaphore::new(0)));
    let (count, gate) = (runs.clone(), may_end.clone());
    let handler = move || async move {
        count.run();
        gate.acquire().await.unwrap().forget();
        "done"
    };
    let layer = builder().max_running(3).build().unwrap();
    let running = layer.running();
    let server = serve(Router::new().route("/pay", post(handler)), layer).await;
    let mut clients = Vec::new();
    for key in ["a", "b", "c"] {
        clients.push(Request::post("/pay", key).send(server.address).await);
    }
    while runs.count() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    drop(clients);
    for key in ["d", "e"] {
        let refused = server.ask(Request::post("/pay", key)).await;
        assert_eq!((refused.status, refused.problem()), (503, "too-many-running".into()));
        assert!(refused.retry_after() >= 1);
    }
    may_end.add_permits(4);
    running.finished().await;
    let answer = server.ask(Request::post("/pay", "d")).await;
    assert_eq!((answer.status, answer.is_replay(), runs.count()), (200, false, 4));
}

#[tokio::test]
async fn a_handler_that_takes_too_long_is_ended_as_a_crash() {
    for (on_crash, again) in [(OnCrash::Rerun, 200), (OnCrash::InDoubt, 409)] {
        let runs = Runs::default();
        let count = runs.clone();
        let handler = move || async move {
            if count.run() == 1 {
                std::future::pending::<()>().await;
            }
            idem::context().unwrap().recovered().to_string()
        };
        let layer = builder().on_crash(on_crash).handler_timeout(Duration::from_millis(50)).build().unwrap();
        let running = layer.running();
        let server = serve(Router::new().route("/pay", post(handler)), layer).await;
        let failed = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((failed.status, failed.problem()), (500, "handler-failed".into()));
        assert_eq!(running.count(), 0);
        let answer = loop {
            let answer = server.ask(Request::post("/pay", "k")).await;
            if answer.status != 409 || answer.problem() != "in-flight" {
                break answer;
            }
        };
        assert_eq!(answer.status, again);
        assert!(again != 200 || answer.body == b"true");
    }
}
