//! Responses that do not answer the request, such as a 401, and handlers that were ended.

use std::time::Duration;

use axum::Router;
use axum::extract::Request as AxumRequest;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idem::OnCrash;
use idem::http::Recording;
use idem_test_servers::web::Request;

use super::{builder, is_kept, pay, when_free};
use crate::framework::serve;
use crate::support::Runs;

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
    let server = pay(|builder| builder, handler).await;
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

/// An inner layer that ends a handler that takes longer than 50 ms.
async fn timed(request: AxumRequest, next: axum::middleware::Next) -> Response {
    match tokio::time::timeout(Duration::from_millis(50), next.run(request)).await {
        Ok(response) => response,
        Err(_) => StatusCode::REQUEST_TIMEOUT.into_response(),
    }
}

#[tokio::test]
async fn a_handler_that_takes_too_long_runs_again_and_knows_it_or_is_in_doubt_by_the_policy() {
    for (on_crash, expected) in [(OnCrash::Rerun, 200), (OnCrash::InDoubt, 409)] {
        for (by_layer_inside, status) in [(true, 408), (false, 500)] {
            let runs = Runs::default();
            let handler = move || async move {
                if runs.run() == 1 {
                    std::future::pending::<()>().await;
                }
                idem::context().unwrap().recovered().to_string()
            };
            let (mut router, mut builder) =
                (Router::new().route("/pay", post(handler)), builder().on_crash(on_crash));
            if by_layer_inside {
                router = router.layer(axum::middleware::from_fn(timed));
            } else {
                builder = builder.handler_timeout(Duration::from_millis(50));
            }
            let server = serve(router, builder.build().unwrap()).await;
            let failed = server.ask(Request::post("/pay", "k")).await;
            assert_eq!(failed.status, status);
            assert!(by_layer_inside || failed.problem() == "handler-failed");
            let again = when_free(&server).await;
            assert_eq!(again.status, expected);
            assert!(if expected == 200 { again.body == b"true" } else { again.problem() == "in-doubt" });
        }
    }
}

#[tokio::test]
async fn an_error_of_the_server_is_in_doubt_where_the_policy_says_so_unless_it_says_that_nothing_was_done() {
    for (released, expected) in [(false, 409), (true, 502)] {
        let options = |builder: idem::http::Builder<_>| {
            let builder = builder.on_crash(OnCrash::InDoubt);
            if released { builder.recording(|_| Some(Recording::Release)) } else { builder }
        };
        let server = pay(options, || async { StatusCode::BAD_GATEWAY }).await;
        assert_eq!(server.ask(Request::post("/pay", "k")).await.status, 502);
        assert_eq!(server.ask(Request::post("/pay", "k")).await.status, expected);
    }
}

#[tokio::test]
async fn a_failure_of_grpc_is_not_kept_though_its_status_is_200() {
    let handler = || async { ([("content-type", "application/grpc"), ("grpc-status", "14")], "") };
    let server = pay(|builder| builder, handler).await;
    assert!(!is_kept(&server, Request::post("/pay", "k")).await);
}
