//! Handlers that crash or are interrupted, and responses that fail.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use futures_util::stream;
use idem::OnCrash;
use idem::http::Recording;
use idem_test_servers::web::{Answer, Request};
use tokio::io::AsyncReadExt as _;

use super::{is_kept, pay, when_free};
use crate::support::Runs;

#[tokio::test]
async fn a_handler_that_crashes_runs_again_and_knows_it_or_is_in_doubt_by_the_policy() {
    for (on_crash, expected) in [(OnCrash::Rerun, 200), (OnCrash::InDoubt, 409)] {
        for (how, status) in [
            ("panics", Some(500)),
            ("times out", Some(500)),
            // Simulates an inner layer that interrupts the handler and answers 408.
            ("answers 408", Some(408)),
            ("breaks off", None),
        ] {
            let runs = Runs::default();
            let count = runs.clone();
            let handler = move || async move {
                match how {
                    _ if count.run() > 1 => idem::context().unwrap().recovered().to_string().into_response(),
                    "panics" => panic!("on purpose"),
                    "answers 408" => StatusCode::REQUEST_TIMEOUT.into_response(),
                    "breaks off" => {
                        let pieces = [Ok(Bytes::from("begin ")), Err("the disk is gone")];
                        Body::from_stream(stream::iter(pieces)).into_response()
                    }
                    _ => std::future::pending().await,
                }
            };
            let options = |builder: idem::http::Builder<_>| match how {
                "times out" => builder.on_crash(on_crash).handler_timeout(Duration::from_millis(50)),
                _ => builder.on_crash(on_crash),
            };
            let server = pay(options, handler).await;
            let mut first = Request::post("/pay", "k").send(server.address).await;
            if let Some(status) = status {
                let failed = Answer::read(&mut first).await;
                assert_eq!(failed.status, status, "{how}");
                if status == 500 {
                    assert_eq!(failed.problem(), "handler-failed", "{how}");
                    let detail = failed.json()["detail"].as_str().unwrap().to_owned();
                    assert_eq!(detail.contains("Send the same request"), expected == 200, "{how}: {detail}");
                }
            } else {
                // The response also breaks off for the client.
                let mut broken = Vec::new();
                let _ = first.read_to_end(&mut broken).await;
                assert!(!broken.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&broken));
            }
            let again = when_free(&server).await;
            assert_eq!((again.status, again.complete, again.is_replay()), (expected, true, false), "{how}");
            assert!(
                if expected == 200 { again.body == b"true" } else { again.problem() == "in-doubt" },
                "{how}"
            );
            assert_eq!(when_free(&server).await.is_replay(), expected == 200, "{how}");
            assert_eq!(runs.count(), if expected == 200 { 2 } else { 1 }, "{how}");
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
