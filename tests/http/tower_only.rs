//! Tests of what only tower has: layers around the layer, nested routers, trailers, services without a framework,
//! paused time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, MatchedPath, Path, Request as AxumRequest};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Request as HttpRequest};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use idem::http::{Guard, IdempotencyLayer, Idempotent, RequestFingerprint};
use idem::{MemoryStore, Outcome};
use idem_test_servers::web::{Answer, Request, Server};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tower_layer::Layer as _;
use tower_service::Service as _;

use crate::cases::bodies::{LIMIT, Slow, echo, layer};
use crate::cases::crashes::builder;
use crate::support::{self, Runs};

/// A service without a framework, with a body type and an error type of its own.
#[tokio::test]
async fn any_tower_service_is_guarded_and_its_own_error_releases_the_key() {
    let runs = Runs::default();
    let count = runs.clone();
    let inner = tower::service_fn(move |request: HttpRequest<idem::http::Body>| {
        let number = count.run();
        async move {
            drop(request);
            if number == 1 {
                Err("the upstream is gone")
            } else {
                Ok(axum::http::Response::new(format!("receipt {number}")))
            }
        }
    });
    let mut service = IdempotencyLayer::shared_by_all_clients(MemoryStore::new()).layer(inner);
    let ask = || HttpRequest::post("/pay").header("idempotency-key", "k").body(Body::from("x")).unwrap();
    assert_eq!(service.call(ask()).await.unwrap_err(), "the upstream is gone");
    assert!(!service.call(ask()).await.unwrap().headers().contains_key("idempotency-replayed"));
    assert!(service.call(ask()).await.unwrap().headers().contains_key("idempotency-replayed"));
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn each_request_is_counted_by_what_the_layer_did() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let inner = tower::service_fn(|_: HttpRequest<idem::http::Body>| async {
        Ok::<_, Infallible>(axum::http::Response::new("receipt".to_owned()))
    });
    let layer = IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients();
    let mut service = layer.build().unwrap().layer(inner);
    let ask = |key: &str, body: &'static str| {
        HttpRequest::post("/pay").header("idempotency-key", key).body(Body::from(body)).unwrap()
    };
    for (key, body) in [("k", "x"), ("k", "x"), ("k", "y"), ("", "x")] {
        let _ = service.call(ask(key, body)).await.unwrap();
    }
    let counted: BTreeMap<String, u64> = recorder
        .snapshotter()
        .snapshot()
        .into_vec()
        .into_iter()
        .filter(|(key, ..)| key.key().name() == "idem_http_total")
        .map(|(key, _, _, value)| {
            let labels: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
            let DebugValue::Counter(count) = value else { panic!("{value:?}") };
            (labels.join(" "), count)
        })
        .collect();
    let expected = ["http handled", "http key-malformed", "http key-reused", "http replayed"];
    assert_eq!(counted, expected.map(|labels| (labels.to_owned(), 1)).into());
}

#[tokio::test]
async fn a_service_that_takes_only_its_own_body_is_guarded_by_a_mapping() {
    async fn pass(request: axum::extract::Request, next: axum::middleware::Next) -> axum::response::Response {
        next.run(request).await
    }
    let layers = tower::ServiceBuilder::new()
        .layer(IdempotencyLayer::shared_by_all_clients(MemoryStore::new()))
        .map_request(|request: HttpRequest<idem::http::Body>| request.map(Body::new))
        .layer(axum::middleware::from_fn(pass));
    let router = Router::new().route("/pay", post(|body: String| async move { body })).layer(layers);
    let server = Server::start(router).await;
    assert_eq!(server.ask(Request::post("/pay", "k").body("abc")).await.body, b"abc");
    assert!(server.ask(Request::post("/pay", "k").body("abc")).await.is_replay());
}

#[tokio::test]
async fn a_limit_of_another_layer_is_413_too() {
    let runs = Runs::default();
    let count = runs.clone();
    let limited = tower::util::MapRequestLayer::new(|request: axum::extract::Request| {
        request.map(|body| Body::new(http_body_util::Limited::new(body, 10)))
    });
    let router = Router::new()
        .route("/echo", post(move |body: Bytes| async move { (count.run(), body).1 }))
        .layer(layer(|builder| builder))
        .layer(limited);
    let server = Server::start(router).await;
    let refused = server.ask(Request::post("/echo", "k").body("eleven byte").chunks(4)).await;
    assert_eq!((refused.status, refused.problem()), (413, "request-too-large".into()));
    assert_eq!(
        (server.ask(Request::post("/echo", "k").body("ten bytes!")).await.status, runs.count()),
        (200, 1)
    );
}

#[tokio::test]
async fn a_client_that_asks_whether_to_send_a_large_body_is_told_not_to() {
    let (server, _) = echo().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nExpect: 100-continue\r\n\
        Content-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
}

#[tokio::test]
async fn trailers_go_through_both_ways_and_are_replayed() {
    let handler = |headers: HeaderMap, request: Body| async move {
        let received = request.collect().await.unwrap();
        assert!(headers.contains_key("trailer"));
        let checksum = received.trailers().and_then(|trailers| trailers.get("x-checksum")).cloned();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", checksum.unwrap_or_else(|| HeaderValue::from_static("none")));
        trailers.append("x-checksum", HeaderValue::from_bytes(b"\xff").unwrap());
        let frames = [Frame::data(Bytes::from_static(b"done")), Frame::trailers(trailers)];
        (
            [("trailer", "x-checksum")],
            Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)))),
        )
    };
    let router = Router::new().route("/pay", post(handler)).layer(layer(|builder| builder));
    let server = Server::start(router).await;
    let request = "POST /pay HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTE: trailers\r\nTrailer: x-checksum\r\n\
        Idempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-checksum: 7\r\n\r\n";
    for replay in [false, true] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = Answer::read(&mut stream).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (&b"done"[..], replay));
        let expected = [("x-checksum", &b"7"[..]), ("x-checksum", b"\xff")];
        let expected: Vec<_> =
            expected.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
        assert_eq!(answer.trailers, expected);
    }
}

#[tokio::test]
async fn a_shutdown_can_wait_for_handlers_whose_server_is_gone() {
    let slow = Slow::start().await;
    let client = Request::post("/pay", "k").send(slow.server.address).await;
    slow.until_begun().await;
    let Slow { server, running, may_end, ended, .. } = slow;
    drop((client, server));
    let waiting = running.clone();
    let finished = tokio::spawn(async move { waiting.finished().await });
    tokio::task::yield_now().await;
    assert!(!finished.is_finished());
    may_end.add_permits(1);
    tokio::time::timeout(Duration::from_secs(10), finished).await.unwrap().unwrap();
    assert_eq!((running.count(), ended.load(Ordering::SeqCst)), (0, 1));
}

/// Stands in for a layer that compresses: uses its own encoding for clients that accept it.
async fn encoded(request: AxumRequest, next: axum::middleware::Next) -> Response {
    let is_taken = request.headers().get("accept-encoding").is_some_and(|taken| taken == "upper");
    let response = next.run(request).await;
    if !is_taken {
        return response;
    }
    let body = axum::body::to_bytes(response.into_body(), 1_024).await.unwrap();
    ([("content-encoding", "upper")], body.to_ascii_uppercase()).into_response()
}

#[tokio::test]
async fn compression_outside_gives_each_client_what_it_takes_and_inside_it_is_recorded() {
    let handler = || async { "receipt" };
    for (is_outside, replayed) in [(true, b"receipt"), (false, b"RECEIPT")] {
        let (router, layer) = (Router::new().route("/pay", post(handler)), builder().build().unwrap());
        let compression = axum::middleware::from_fn(encoded);
        let router = match is_outside {
            true => router.layer(layer).layer(compression),
            false => router.layer(compression).layer(layer),
        };
        let server = Server::start(router).await;
        let first = server.ask(Request::post("/pay", "k").header("Accept-Encoding", "upper")).await;
        assert_eq!(first.body, b"RECEIPT");
        let again = server.ask(Request::post("/pay", "k").header("Accept-Encoding", "identity")).await;
        assert!(again.is_replay());
        assert_eq!(again.body, replayed);
    }
}

/// Where the layer is, of a router within a router.
#[derive(Clone, Copy, Debug)]
enum At {
    Inside,
    Outside,
}

#[tokio::test]
async fn the_route_that_matched_counts_only_where_the_program_says_so_and_the_handler_sees_it() {
    let matched = |parts: &Parts| {
        let matched = parts.extensions.get::<MatchedPath>();
        matched.map_or_else(String::new, |matched| matched.as_str().to_owned())
    };
    let handler = |matched: MatchedPath, Path((account, payment)): Path<(u64, u64)>| async move {
        format!("{} of {account} and {payment}", matched.as_str())
    };
    for at in [At::Inside, At::Outside] {
        for route_counts in [false, true] {
            let layer = match route_counts {
                true => builder().fingerprint(RequestFingerprint::new().route(matched)),
                false => builder(),
            };
            let (payments, layer) =
                (Router::new().route("/payments/{payment}", post(handler)), layer.build().unwrap());
            let router = match at {
                At::Inside => Router::new().nest("/accounts/{account}", payments.route_layer(layer)),
                At::Outside => Router::new().nest("/accounts/{account}", payments).layer(layer),
            };
            let server = Server::start(router).await;
            let first = server.ask(Request::post("/accounts/1/payments/7", "k")).await;
            assert_eq!(first.body, b"/accounts/{account}/payments/{payment} of 1 and 7", "{at:?}");
            // The same route with another parameter, of the inner router and of the outer.
            for other in ["/accounts/1/payments/8", "/accounts/2/payments/7"] {
                let other = server.ask(Request::post(other, "k")).await;
                if route_counts {
                    assert!(other.is_replay() && other.body == first.body, "{at:?}");
                } else {
                    assert_eq!((other.status, other.problem()), (422, "key-reused".into()), "{at:?}");
                }
            }
        }
    }
}

/// Without sockets, because a paused clock does not wait for their bytes.
#[tokio::test(start_paused = true)]
async fn section_2_3_a_key_expires_and_is_then_new() {
    let (layer, runs) = (builder().ttl(Duration::from_secs(60)).build().unwrap(), Runs::default());
    let mut service = layer.layer(tower::service_fn(move |_: HttpRequest<idem::http::Body>| {
        let number = runs.run();
        async move { Ok::<_, Infallible>(axum::http::Response::new(number.to_string())) }
    }));
    let mut ask = async || {
        let request = HttpRequest::post("/pay").header("idempotency-key", "k").body(Body::empty()).unwrap();
        service.call(request).await.unwrap().into_body().collect().await.unwrap().to_bytes()
    };
    assert_eq!(ask().await, "1");
    tokio::time::advance(Duration::from_secs(59)).await;
    assert_eq!(ask().await, "1");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(ask().await, "2");
}

#[tokio::test(start_paused = true)]
async fn a_refused_duplicate_comes_again_in_a_second_or_two_while_the_lease_runs() {
    for (lease, longest) in [(30_000, 2), (1_500, 2), (400, 1)] {
        let layer = builder().lease(Duration::from_millis(lease)).wait(Duration::ZERO).build().unwrap();
        let mut service = layer.layer(tower::service_fn(|_: HttpRequest<idem::http::Body>| {
            std::future::pending::<Result<axum::http::Response<String>, Infallible>>()
        }));
        let mut ask = || {
            let request = HttpRequest::post("/pay").header("idempotency-key", "k").body(Body::empty());
            tokio::time::timeout(Duration::from_millis(1), service.call(request.unwrap()))
        };
        assert!(ask().await.is_err(), "its handler runs");
        let refused = ask().await.expect("an answer").unwrap();
        let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(refused.status() == 409 && (1..=longest).contains(&seconds), "{lease}: {seconds}");
    }
}

#[tokio::test]
async fn a_refusal_and_a_panic_are_events_without_a_key() {
    let log = support::logged();
    let handler = |body: String| async move {
        assert!(body.is_empty(), "a bug");
    };
    let server =
        Server::start(Router::new().route("/pay", post(handler)).layer(builder().build().unwrap())).await;
    server.ask(Request::new("POST", "/pay")).await;
    server.ask(Request::post("/pay", "hush").body("x")).await;
    let log = log.text();
    for expected in ["key-missing", "handler_panicked", "handler-failed"] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains("hush"), "{log}");
}

#[tokio::test]
async fn a_method_that_is_not_guarded_streams_both_ways() {
    let handler = |body: Body| async move { body };
    let router = Router::new().route("/echo", axum::routing::put(handler)).layer(layer(|builder| builder));
    let server = Server::start(router).await;
    let large = vec![b'x'; 10 * LIMIT];
    let answer = server.ask(Request::new("PUT", "/echo").body(&large)).await;
    assert_eq!((answer.body.len(), answer.text("content-length")), (10 * LIMIT, Some("10000")));
    let answer = server.ask(Request::new("PUT", "/echo").body(&large).chunks(99)).await;
    assert_eq!((answer.body.len(), answer.text("transfer-encoding")), (10 * LIMIT, Some("chunked")));
}

#[tokio::test]
async fn a_body_that_is_malformed_is_400() {
    let (server, _) = echo().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /echo HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(b"3\r\nabc\r\nzz\r\n").await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 400);
}

#[tokio::test]
async fn an_axum_handler_takes_its_call_as_an_argument() {
    let required =
        |Idempotent(call): Idempotent| async move { format!("{} {}", call.operation(), call.attempt()) };
    let optional = |call: Option<Idempotent>| async move { call.is_some().to_string() };
    let routes = || Router::new().route("/required", post(required)).route("/optional", post(optional));
    let guarded = layer(|builder| builder.guard(|_| Guard::Optional));
    let server = Server::start(routes().layer(guarded)).await;
    assert_eq!(server.ask(Request::post("/required", "k")).await.body, b"http 1");
    assert_eq!(server.ask(Request::post("/optional", "l")).await.body, b"true");
    assert_eq!(server.ask(Request::new("POST", "/optional")).await.body, b"false");
    let refused = server.ask(Request::new("POST", "/required")).await;
    assert_eq!(refused.status, 500);
    assert!(refused.json()["type"].as_str().unwrap().ends_with("misconfigured"));
}

#[derive(Clone)]
struct Account(String);

#[tokio::test]
async fn the_tenant_is_what_authentication_outside_has_put_into_the_request() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move { format!("receipt {}", count.run()) };
    let guard = IdempotencyLayer::builder(MemoryStore::new())
        .tenant(|request| Some(request.extensions.get::<Account>()?.0.clone()));
    let guarded = |account: Option<&str>| {
        let router = Router::new().route("/pay", post(handler.clone())).layer(guard.clone().build().unwrap());
        match account {
            Some(account) => router.layer(Extension(Account(account.to_owned()))),
            None => router,
        }
    };
    for (account, body, replay) in [("one", "1", false), ("other", "2", false), ("one", "1", true)] {
        let server = Server::start(guarded(Some(account))).await;
        let answer = server.ask(Request::post("/pay", "k")).await;
        let is_replay = answer.is_replay();
        assert_eq!((answer.body, is_replay), (format!("receipt {body}").into_bytes(), replay));
    }
    let server = Server::start(guarded(None)).await;
    assert_eq!(server.ask(Request::post("/pay", "k")).await.problem(), "tenant-missing");
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn the_host_counts_where_it_is_named_over_http_2_too() {
    let inner = tower::service_fn(|_: HttpRequest<idem::http::Body>| async {
        Ok::<_, Infallible>(axum::http::Response::new("receipt".to_owned()))
    });
    let layer = builder().fingerprint(RequestFingerprint::new().with_header(axum::http::header::HOST));
    let mut service = layer.build().unwrap().layer(inner);
    let mut ask = async |uri: &str, host: Option<&str>| {
        // Over HTTP/2 the host is the authority of the URI, and there is no header.
        let mut request = HttpRequest::post(uri).header("idempotency-key", "k").body(Body::empty()).unwrap();
        request.headers_mut().extend(host.map(|host| (axum::http::header::HOST, host.parse().unwrap())));
        service.call(request).await.unwrap().status().as_u16()
    };
    assert_eq!(ask("https://one.example/pay", None).await, 200);
    assert_eq!(ask("https://other.example/pay", None).await, 422);
    assert_eq!(ask("/pay", Some("one.example")).await, 200);
    assert_eq!(ask("https://user:secret@One.example/pay", Some("other.example")).await, 200);
    assert_eq!(ask("/pay", Some("other.example")).await, 422);
}

#[tokio::test]
async fn a_service_outside_sees_how_a_response_came_about() {
    let inner = tower::service_fn(|_: HttpRequest<idem::http::Body>| async {
        Ok::<_, Infallible>(axum::http::Response::new("receipt".to_owned()))
    });
    let mut service = builder().build().unwrap().layer(inner);
    let mut ask = async || {
        let request = HttpRequest::post("/pay").header("idempotency-key", "k").body(Body::empty()).unwrap();
        *service.call(request).await.unwrap().extensions().get::<Outcome>().unwrap()
    };
    let before = std::time::SystemTime::now();
    assert!(matches!(ask().await, Outcome::Executed { attempt: 1, recovered: false, not_stored: None, .. }));
    let Outcome::Replayed { attempt: 1, completed_at, .. } = ask().await else { panic!("no replay") };
    assert!((before..=std::time::SystemTime::now()).contains(&completed_at), "{completed_at:?}");
}
