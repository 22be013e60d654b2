//! Tests of bodies in the HTTP layer, over real sockets: exact bytes, limits, streams, trailers, clients that go away,
//! handlers that panic.

use crate::framework::{Server, bare, serve};
use crate::support;

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::DefaultBodyLimit;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{Method, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use futures_util::{StreamExt as _, stream};
use idem::MemoryStore;
use idem::http::{Builder, IdempotencyLayer, Recording, Running};
use idem_test_servers::web::{Answer, Request};
use support::Runs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};

/// The largest body of a request or of a kept response in these tests.
pub(crate) const LIMIT: usize = 1_000;

pub(crate) fn layer(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
) -> IdempotencyLayer<MemoryStore> {
    let builder = IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients();
    options(builder.max_request_bytes(LIMIT).max_response_bytes(LIMIT)).build().unwrap()
}

/// A server that echoes bodies and counts its runs.
pub(crate) async fn echo() -> (Server, Runs) {
    let runs = Runs::default();
    let count = runs.clone();
    let echo = move |body: Bytes| async move {
        count.run();
        body
    };
    let router = Router::new().route("/echo", post(echo)).layer(DefaultBodyLimit::disable());
    (serve(router, layer(|builder| builder)).await, runs)
}

#[tokio::test]
async fn the_handler_gets_exactly_the_bytes_that_the_client_sent() {
    let (server, runs) = echo().await;
    let bytes: Vec<u8> = (0..LIMIT).map(|index| u8::try_from(index % 256).unwrap()).collect();
    let json = " {\"b\":1.0,\n\"a\":\"\\u00e9\"}\r\n";
    for (key, request) in [
        ("whole", Request::post("/echo", "whole").body(&bytes)),
        ("chunked", Request::post("/echo", "chunked").body(&bytes).chunks(7)),
        ("empty", Request::post("/echo", "empty")),
        ("empty-chunked", Request::post("/echo", "empty-chunked").chunks(7)),
        ("json", Request::post("/echo", "json").json(json)),
    ] {
        let first = server.ask(request.clone()).await;
        let again = server.ask(request).await;
        let sent: &[u8] = match key {
            "json" => json.as_bytes(),
            "whole" | "chunked" => &bytes,
            _ => b"",
        };
        assert_eq!((first.status, &first.body[..], first.is_replay()), (200, sent, false), "{key}");
        assert_eq!((again.lasting(), again.is_replay()), (first.lasting(), true), "{key}");
    }
    assert_eq!(runs.count(), 5);
}

#[tokio::test]
async fn how_a_body_is_cut_into_chunks_does_not_make_it_another_request() {
    let (server, runs) = echo().await;
    for request in [
        Request::post("/echo", "k").body("abcdef"),
        Request::post("/echo", "k").body("abcdef").chunks(1),
        Request::post("/echo", "k").body("abcdef").chunks(4),
    ] {
        assert_eq!(server.ask(request).await.body, b"abcdef");
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_request_beyond_the_limit_is_413_and_takes_no_key() {
    let (server, runs) = echo().await;
    let large = vec![b'x'; LIMIT + 1];
    for request in [
        Request::post("/echo", "k").body(&large),
        Request::post("/echo", "k").body(&large).chunks(100),
        Request::post("/echo", "k").body(vec![b'x'; 20 * LIMIT]).chunks(1),
    ] {
        let refused = server.ask(request).await;
        assert_eq!((refused.status, refused.problem()), (413, "request-too-large".into()));
    }
    assert_eq!(runs.count(), 0);
    let fitting = server.ask(Request::post("/echo", "k").body(&large[1..])).await;
    assert_eq!((fitting.status, fitting.body.len()), (200, LIMIT));
}

#[tokio::test]
async fn a_client_that_reads_only_when_it_has_sent_all_is_told_why_it_was_refused() {
    let (server, runs) = echo().await;
    // More than fits in the buffers of a connection.
    let large = vec![b'x'; 12 << 20];
    for (request, status) in [
        (Request::post("/echo", "k").body(&large), 413),
        (Request::post("/echo", "k").body(&large).chunks(1 << 16), 413),
        (Request::new("POST", "/echo").body(&large), 400),
        (Request::post("/echo", "\\").body(&large), 400),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(&request.bytes()).await.unwrap();
        assert_eq!(Answer::read(&mut stream).await.status, status);
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_client_that_was_told_to_send_its_body_can_send_all_of_it_and_is_told_why_it_was_refused() {
    let (server, runs) = echo().await;
    // Its length is not known in advance, so the server notices only while reading that it is too large.
    let request = Request::post("/echo", "k").header("Expect", "100-continue");
    let bytes = request.body(vec![b'x'; 12 << 20]).chunks(1 << 16).bytes();
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&bytes[..head]).await.unwrap();
    let mut told = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut told).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(&bytes[head..]).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_body_without_end_is_refused_at_the_limit() {
    let (server, runs) = echo().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // The body never ends, so an answer can come only when the limit is reached.
    for _ in 0..=LIMIT {
        if stream.write_all(b"1\r\nx\r\n").await.is_err() {
            break;
        }
    }
    assert_eq!(Answer::read(&mut stream).await.status, 413);
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn nothing_is_claimed_before_the_request_is_whole() {
    let (server, runs) = echo().await;
    let whole = Request::post("/echo", "k").body("abcdef").bytes();
    // Two clients stop in the middle of the body; one of them goes away.
    let mut waiting = TcpStream::connect(server.address).await.unwrap();
    waiting.write_all(&whole[..whole.len() - 3]).await.unwrap();
    let mut gone = TcpStream::connect(server.address).await.unwrap();
    gone.write_all(&whole[..whole.len() - 3]).await.unwrap();
    drop(gone);
    let first = server.ask(Request::post("/echo", "k").body("abcdef")).await;
    assert_eq!((first.status, first.is_replay()), (200, false));
    waiting.write_all(&whole[whole.len() - 3..]).await.unwrap();
    assert!(Answer::read(&mut waiting).await.is_replay());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_body_that_is_malformed_takes_no_key() {
    let (server, runs) = echo().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"3\r\nabc\r\nzz\r\n").await.unwrap();
    // The framework may answer it or close its connection.
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let first = server.ask(Request::post("/echo", "k").body("abc")).await;
    assert_eq!((first.status, first.is_replay(), runs.count()), (200, false, 1));
}

/// Sends the request twice: the first answer must arrive as the handler gave it, and the second must say that the
/// response was not kept.
async fn assert_goes_through_and_is_not_kept(server: &Server, path: &str, body: &[u8]) -> Answer {
    let first = server.ask(Request::post(path, path)).await;
    assert_eq!((first.status, &first.body[..], first.complete), (201, body, true), "{path}");
    for _ in 0..2 {
        let again = server.ask(Request::post(path, path)).await;
        assert_eq!((again.status, again.problem()), (409, "response-not-stored".into()), "{path}");
    }
    first
}

#[tokio::test]
async fn a_response_too_large_or_streaming_goes_through_and_is_never_run_again() {
    let runs = Runs::default();
    let large = vec![b'x'; LIMIT + 1];
    let pieces = |size: usize| {
        let pieces: Vec<_> =
            large.chunks(size).map(Bytes::copy_from_slice).map(Ok::<_, Infallible>).collect();
        move || Body::from_stream(stream::iter(pieces.clone()))
    };
    let answer =
        |body: Arc<dyn Fn() -> Body + Send + Sync>, kind: &'static str, handling: Option<Recording>| {
            let runs = runs.clone();
            post(move || async move {
                runs.run();
                let mut response = (StatusCode::CREATED, [(CONTENT_TYPE, kind)], body()).into_response();
                response.extensions_mut().extend(
                    handling
                        .map(|handling| {
                            let mut extensions = axum::http::Extensions::new();
                            extensions.insert(handling);
                            extensions
                        })
                        .unwrap_or_default(),
                );
                response
            })
        };
    let whole = large.clone();
    let router = Router::new()
        .route("/known", answer(Arc::new(move || Body::from(whole.clone())), "text/plain", None))
        .route("/unknown", answer(Arc::new(pieces(100)), "text/plain", None))
        .route("/one-piece", answer(Arc::new(pieces(LIMIT + 1)), "text/plain", None))
        .route(
            "/events",
            answer(Arc::new(|| Body::from("data: 1\n\n")), "Text/Event-Stream; charset=utf-8", None),
        )
        .route("/said", answer(Arc::new(|| Body::from("x")), "text/plain", Some(Recording::PassThrough)));
    let server = serve(router, layer(|builder| builder)).await;
    let known = assert_goes_through_and_is_not_kept(&server, "/known", &large).await;
    assert_eq!(known.text("content-length"), Some("1001"));
    assert_goes_through_and_is_not_kept(&server, "/unknown", &large).await;
    assert_goes_through_and_is_not_kept(&server, "/one-piece", &large).await;
    assert_goes_through_and_is_not_kept(&server, "/events", b"data: 1\n\n").await;
    assert_goes_through_and_is_not_kept(&server, "/said", b"x").await;
    assert_eq!(runs.count(), 5);
}

#[tokio::test]
async fn the_first_bytes_of_a_stream_reach_the_client_before_the_last_are_made() {
    let (send, events) = mpsc::channel::<Bytes>(1);
    let events = Arc::new(std::sync::Mutex::new(Some(events)));
    let handler = move || async move {
        let events = events.lock().unwrap().take().unwrap();
        let events = stream::unfold(events, |mut events| async move {
            events.recv().await.map(|event| (Ok::<_, Infallible>(event), events))
        });
        ([(CONTENT_TYPE, "text/event-stream")], Body::from_stream(events))
    };
    let router = Router::new().route("/events", post(handler));
    let server = serve(router, layer(|builder| builder)).await;
    let mut stream = Request::post("/events", "k").send(server.address).await;
    send.send(Bytes::from_static(b"data: first\n\n")).await.unwrap();
    let mut seen = String::new();
    while !seen.contains("data: first") {
        let mut bytes = [0; 256];
        let count = stream.read(&mut bytes).await.unwrap();
        assert_ne!(count, 0, "{seen}");
        seen.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
    }
    // The call is recorded by now, although the stream has not ended.
    assert_eq!(server.ask(Request::post("/events", "k")).await.problem(), "response-not-stored");
    send.send(Bytes::from_static(b"data: last\n\n")).await.unwrap();
    drop(send);
    stream.read_to_string(&mut seen).await.unwrap();
    assert!(seen.contains("data: last") && seen.ends_with("0\r\n\r\n"), "{seen}");
}

#[tokio::test]
async fn a_response_of_unknown_length_within_the_limit_is_kept() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let number = count.run();
        let pieces = [Bytes::from("receipt "), Bytes::from(number.to_string())];
        Body::from_stream(stream::iter(pieces).map(Ok::<_, Infallible>))
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, layer(|builder| builder)).await;
    for replay in [false, true] {
        let answer = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (&b"receipt 1"[..], replay));
    }
}

#[tokio::test]
async fn a_response_that_breaks_off_breaks_off_at_the_client_too_and_is_not_kept() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let end = if count.run() == 1 { Err("the disk is gone") } else { Ok(Bytes::from("end")) };
        Body::from_stream(stream::iter([Ok(Bytes::from("begin ")), end]))
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, layer(|builder| builder)).await;
    let mut broken = Vec::new();
    let mut stream = Request::post("/pay", "k").send(server.address).await;
    let _ = stream.read_to_end(&mut broken).await;
    assert!(!broken.ends_with(b"0\r\n\r\n"), "{}", String::from_utf8_lossy(&broken));
    let again = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((&again.body[..], again.complete, again.is_replay()), (&b"begin end"[..], true, false));
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
    assert_eq!(runs.count(), 2);
}

/// A route whose first response has these pieces and whose later responses have 9 bytes; all of them announce 9 bytes.
fn promising_9_bytes(first: &'static [&'static str]) -> (Router, Runs) {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let pieces: &[&str] = if count.run() == 1 { first } else { &["begin ", "end"] };
        let pieces = pieces.iter().map(|piece| Ok::<_, Infallible>(Bytes::from_static(piece.as_bytes())));
        ([(CONTENT_LENGTH, "9")], Body::from_stream(stream::iter(pieces)))
    };
    (Router::new().route("/pay", post(handler)), runs)
}

/// Whether the 9 bytes that were announced arrive before the connection is closed.
async fn nine_bytes_come(server: &Server) -> bool {
    let (mut stream, mut text) = (Request::post("/pay", "k").send(server.address).await, String::new());
    let _ = stream.read_to_string(&mut text).await;
    text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.len() == 9)
}

#[tokio::test]
async fn a_response_of_another_length_than_it_says_breaks_off_as_without_the_layer_and_is_not_kept() {
    for (first, come) in [(&["begin "][..], false), (&[], false), (&["begin ", "end", " and more"], true)] {
        let bare = bare(promising_9_bytes(first).0).await;
        let (router, runs) = promising_9_bytes(first);
        let server = serve(router, layer(|builder| builder)).await;
        assert_eq!((nine_bytes_come(&bare).await, nine_bytes_come(&server).await), (come, come), "{first:?}");
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
    let router = Router::new().route("/pay", axum::routing::any(handler));
    let server = serve(router, layer(|builder| builder.methods([Method::HEAD, Method::POST]))).await;
    for method in ["HEAD", "POST"] {
        for replay in [false, true] {
            let request = Request::new(method, "/pay").header("Idempotency-Key", method);
            let answer = server.ask(request).await;
            assert_eq!(answer.is_replay(), replay, "{method}");
            // hyper sends no content-length with a 304; actix-web does.
            assert!(method == "POST" || answer.text("content-length") == Some("9"));
        }
    }
}

/// A server whose handler begins, waits and ends when the test says so.
pub(crate) struct Slow {
    pub(crate) server: Server,
    pub(crate) running: Running,
    begun: Arc<Semaphore>,
    pub(crate) may_end: Arc<Semaphore>,
    pub(crate) ended: Arc<AtomicUsize>,
}

impl Slow {
    pub(crate) async fn start() -> Self {
        let layer = layer(|builder| builder);
        let running = layer.running();
        let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let ended = Arc::new(AtomicUsize::new(0));
        let (seen, gate, count) = (begun.clone(), may_end.clone(), ended.clone());
        let handler = move || async move {
            seen.add_permits(1);
            gate.acquire().await.unwrap().forget();
            format!("receipt {}", count.fetch_add(1, Ordering::SeqCst) + 1)
        };
        let server = serve(Router::new().route("/pay", post(handler)), layer).await;
        Self { server, running, begun, may_end, ended }
    }

    pub(crate) async fn until_begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }
}

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
