//! Bodies of responses: which bodies are kept, streams, and lengths.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use axum::{Extension, Router};
use futures_util::stream;
use idem::http::{Guard, Recording};
use idem_test_servers::web::{Request, read_until};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use super::{LIMIT, builder, pay};
use crate::framework::serve;
use crate::support::Runs;

#[tokio::test]
async fn a_response_too_large_or_streaming_goes_through_and_is_never_run_again() {
    let runs = Runs::default();
    let count = runs.clone();
    let large = vec![b'x'; LIMIT + 1];
    let sent = large.clone();
    let handler = move |headers: HeaderMap| async move {
        count.run();
        let pieces = |size| {
            let pieces: Vec<_> =
                sent.chunks(size).map(Bytes::copy_from_slice).map(Ok::<_, Infallible>).collect();
            Body::from_stream(stream::iter(pieces))
        };
        let response = match headers["x-wish"].as_bytes() {
            b"known" => Body::from(sent).into_response(),
            b"unknown" => pieces(100).into_response(),
            b"one-piece" => pieces(LIMIT + 1).into_response(),
            b"events" => ([(CONTENT_TYPE, "Text/Event-Stream; charset=utf-8")], sent).into_response(),
            _ => (Extension(Recording::PassThrough), sent).into_response(),
        };
        (StatusCode::CREATED, response)
    };
    let server = pay(|builder| builder, handler).await;
    for wish in ["known", "unknown", "one-piece", "events", "said"] {
        let request = Request::post("/pay", wish).header("X-Wish", wish);
        let first = server.ask(request.clone()).await;
        assert_eq!((first.status, &first.body[..], first.complete), (201, &large[..], true), "{wish}");
        assert!(wish != "known" || first.text("content-length") == Some("1001"));
        for _ in 0..2 {
            let again = server.ask(request.clone()).await;
            assert_eq!((again.status, again.problem()), (409, "response-not-stored".into()), "{wish}");
        }
    }
    assert_eq!(runs.count(), 5);
}

#[tokio::test]
async fn the_first_bytes_of_a_stream_reach_the_client_before_the_last_are_made() {
    let (send, events) = mpsc::channel::<Bytes>(1);
    let events = Arc::new(Mutex::new(Some(events)));
    let handler = move || async move {
        let events = events.lock().unwrap().take().unwrap();
        let events = stream::unfold(events, |mut events| async move {
            events.recv().await.map(|event| (Ok::<_, Infallible>(event), events))
        });
        ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
    };
    let server = pay(|builder| builder, handler).await;
    let mut stream = Request::post("/pay", "k").send(server.address).await;
    send.send(Bytes::from_static(b"data: first\n\n")).await.unwrap();
    let mut seen = read_until(&mut stream, "data: first").await;
    // The call is already recorded, although the stream has not ended.
    assert_eq!(server.ask(Request::post("/pay", "k")).await.problem(), "response-not-stored");
    send.send(Bytes::from_static(b"data: last\n\n")).await.unwrap();
    drop(send);
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.contains("data: last") && seen.ends_with("0\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_response_of_another_length_than_it_says_breaks_off_and_is_not_kept() {
    for (first, come) in [(&["begin "][..], false), (&[], false), (&["begin ", "end", " and more"], true)] {
        let runs = Runs::default();
        let count = runs.clone();
        // Every response declares nine bytes. All responses after the first have nine bytes.
        let handler = move || async move {
            let pieces: &[&str] = if count.run() == 1 { first } else { &["begin ", "end"] };
            let pieces = pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes())));
            ([(CONTENT_LENGTH, "9")], Body::from_stream(stream::iter(pieces)))
        };
        let server = pay(|builder| builder, handler).await;
        let (mut stream, mut text) = (Request::post("/pay", "k").send(server.address).await, String::new());
        let _ = stream.read_to_string(&mut text).await;
        let length = text.split_once("\r\n\r\n").map(|(_, body)| body.len());
        assert_eq!(length == Some(9), come, "{first:?}");
        let again = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((&again.body[..], again.complete, again.is_replay()), (&b"begin end"[..], true, false));
        assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
        assert_eq!(runs.count(), 2);
    }
}

#[tokio::test]
async fn a_response_that_has_no_body_may_say_the_length_that_it_would_have_and_is_kept() {
    let handler = |method: Method| async move {
        let status = if method == Method::HEAD { StatusCode::OK } else { StatusCode::NOT_MODIFIED };
        (status, [(CONTENT_LENGTH, "9")], Body::empty())
    };
    let router = Router::new().route("/pay", any(handler));
    let server = serve(router, builder().guard(|_| Guard::Required).build().unwrap()).await;
    for method in ["HEAD", "POST"] {
        for replay in [false, true] {
            let request = Request::new(method, "/pay").header("Idempotency-Key", method);
            let answer = server.ask(request).await;
            assert_eq!(answer.is_replay(), replay, "{method}");
            // With a 304, actix-web sends a content-length and hyper does not. So only `HEAD` is checked.
            assert!(method == "POST" || answer.text("content-length") == Some("9"));
        }
    }
}
