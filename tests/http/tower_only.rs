//! Tests of features that only tower has: layers around the layer, nested routers, trailers, services without
//! a framework, paused time.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request as AxumRequest};
use axum::http::{HeaderValue, Request as HttpRequest};
use axum::routing::post;
use futures_util::stream;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use idem::http::{Builder, Guard, IdempotencyLayer, Idempotent, RequestFingerprint};
use idem::{MemoryStore, Outcome};
use idem_test_servers::web::{Answer, Request, Server};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tower_layer::Layer as _;
use tower_service::Service as _;
use tracing::Instrument as _;

use crate::cases::{LIMIT, account, builder, echo};
use crate::support::Runs;

/// A request under the key `k`.
fn request(uri: &str) -> HttpRequest<Body> {
    HttpRequest::post(uri).header("idempotency-key", "k").body(Body::empty()).unwrap()
}

/// A service without a framework, which returns a receipt.
fn receipts()
-> tower::util::BoxCloneSyncService<HttpRequest<idem::http::Body>, axum::http::Response<String>, Infallible> {
    let pay =
        |_: HttpRequest<idem::http::Body>| async { Ok(axum::http::Response::new("receipt".to_owned())) };
    tower::util::BoxCloneSyncService::new(tower::service_fn(pay))
}

/// A service without a framework, with its own body type and its own error type.
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
    assert_eq!(service.call(request("/pay")).await.unwrap_err(), "the upstream is gone");
    for is_replay in [false, true] {
        let response = service.call(request("/pay")).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotency-replayed"), is_replay);
    }
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn each_request_is_counted_by_what_the_layer_did() {
    let recorder = DebuggingRecorder::new();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mut service = builder().build().unwrap().layer(receipts());
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
async fn a_service_that_takes_only_its_own_body_is_guarded_by_a_mapping_and_a_limit_outside_is_413_too() {
    let pass = |request: AxumRequest, next: axum::middleware::Next| next.run(request);
    let layers = tower::ServiceBuilder::new()
        .layer(IdempotencyLayer::shared_by_all_clients(MemoryStore::new()))
        .map_request(|request: HttpRequest<idem::http::Body>| request.map(Body::new))
        .layer(axum::middleware::from_fn(pass));
    let limited = tower::util::MapRequestLayer::new(|request: AxumRequest| {
        request.map(|body| Body::new(http_body_util::Limited::new(body, 10)))
    });
    let echo = post(|body: String| async move { body });
    let server = Server::start(Router::new().route("/pay", echo).layer(layers).layer(limited)).await;
    let refused = server.ask(Request::post("/pay", "k").body("eleven byte").chunks(4)).await;
    assert_eq!((refused.status, refused.problem()), (413, "request-too-large".into()));
    for replay in [false, true] {
        let answer = server.ask(Request::post("/pay", "k").body("ten bytes!")).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (&b"ten bytes!"[..], replay));
    }
}

#[tokio::test]
async fn a_client_that_asks_whether_to_send_a_large_body_is_told_not_to() {
    let (server, _) = echo().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /pay HTTP/1.1\r\nHost: x\r\nIdempotency-Key: \"k\"\r\nExpect: 100-continue\r\n\
        Content-Length: 100000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(Answer::read(&mut stream).await.status, 413);
}

#[tokio::test]
async fn trailers_go_through_both_ways_and_are_replayed() {
    let handler = |request: Body| async move {
        let mut trailers = request.collect().await.unwrap().trailers().unwrap().clone();
        trailers.append("x-checksum", HeaderValue::from_bytes(b"\xff").unwrap());
        let frames = [Frame::data(Bytes::from_static(b"done")), Frame::trailers(trailers)];
        (
            [("trailer", "x-checksum")],
            Body::new(StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)))),
        )
    };
    let router = Router::new().route("/pay", post(handler)).layer(builder().build().unwrap());
    let server = Server::start(router).await;
    let request = "POST /pay HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTE: trailers\r\nTrailer: x-checksum\r\n\
        Idempotency-Key: \"k\"\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-checksum: 7\r\n\r\n";
    for replay in [false, true] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let answer = Answer::read(&mut stream).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (&b"done"[..], replay));
        let trailers = answer.trailers.iter().map(|(name, value)| (&**name, &**value));
        assert!(trailers.eq([("x-checksum", &b"7"[..]), ("x-checksum", b"\xff")]));
    }
}

#[tokio::test]
async fn the_path_of_a_request_to_a_nested_router_is_the_one_that_the_client_sent() {
    let handler = |Path(parameters): Path<(u64, u64)>| async move { format!("{parameters:?}") };
    let payments = Router::new().route("/payments/{payment}", post(handler));
    let payments = payments.route_layer(builder().build().unwrap());
    let server = Server::start(Router::new().nest("/accounts/{account}", payments)).await;
    assert_eq!(server.ask(Request::post("/accounts/1/payments/7", "k")).await.body, b"(1, 7)");
    // The same route, with another parameter of the inner router and then of the outer router.
    for other in ["/accounts/1/payments/8", "/accounts/2/payments/7"] {
        let other = server.ask(Request::post(other, "k")).await;
        assert_eq!((other.status, other.problem()), (422, "key-reused".into()));
    }
}

/// This test uses no sockets, because a paused clock does not wait for their bytes.
#[tokio::test(start_paused = true)]
async fn section_2_3_a_key_expires_and_is_then_new() {
    let mut service = builder().ttl(Duration::from_secs(60)).build().unwrap().layer(receipts());
    for (seconds, is_replay) in [(0, false), (59, true), (2, false)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        let response = service.call(request("/pay")).await.unwrap();
        assert_eq!(response.headers().contains_key("idempotency-replayed"), is_replay);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_duplicate_comes_again_in_a_second_or_two_while_the_lease_runs() {
    for (lease, longest) in [(30_000, 2), (1_500, 2), (400, 1)] {
        let layer = builder().lease(Duration::from_millis(lease)).wait(Duration::ZERO).build().unwrap();
        let mut service = layer.layer(tower::service_fn(|_: HttpRequest<idem::http::Body>| {
            std::future::pending::<Result<axum::http::Response<String>, Infallible>>()
        }));
        let mut ask = || tokio::time::timeout(Duration::from_millis(1), service.call(request("/pay")));
        assert!(ask().await.is_err(), "its handler runs");
        let refused = ask().await.expect("an answer").unwrap();
        let seconds: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!(refused.status() == 409 && (1..=longest).contains(&seconds), "{lease}: {seconds}");
    }
}

#[tokio::test]
async fn a_refusal_and_a_panic_are_events_without_a_key_and_a_handler_runs_in_the_span_of_its_request() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(Arc::new(log.reopen().unwrap()));
    let _guard = tracing::subscriber::set_default(lines.finish());
    let handler = |body: String| async move {
        tracing::info!("the handler says {}", body.len());
        assert!(body.is_empty(), "a bug");
    };
    // A span around each request, as a framework adds it.
    let spanned = axum::middleware::from_fn(|request: AxumRequest, next: axum::middleware::Next| {
        next.run(request).instrument(tracing::info_span!("server"))
    });
    let router = Router::new().route("/pay", post(handler)).layer(builder().build().unwrap()).layer(spanned);
    let server = Server::start(router).await;
    server.ask(Request::new("POST", "/pay")).await;
    server.ask(Request::post("/pay", "hush").body("x")).await;
    let log = std::fs::read_to_string(log).unwrap();
    for expected in ["key-missing", "handler_panicked", "handler-failed"] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains("hush"), "{log}");
    for event in ["the handler says 1", "handler_panicked"] {
        let line = log.lines().find(|line| line.contains(event)).unwrap();
        assert!(line.contains("server:idempotent_request{"), "{line}");
    }
}

#[tokio::test]
async fn a_method_that_is_not_guarded_streams_both_ways() {
    let handler = |body: Body| async move { body };
    let router = Router::new().route("/echo", axum::routing::put(handler)).layer(builder().build().unwrap());
    let server = Server::start(router).await;
    let large = vec![b'x'; 10 * LIMIT];
    let answer = server.ask(Request::new("PUT", "/echo").body(&large)).await;
    assert_eq!((answer.body.len(), answer.text("content-length")), (10 * LIMIT, Some("10000")));
    let answer = server.ask(Request::new("PUT", "/echo").body(&large).chunks(99)).await;
    assert_eq!((answer.body.len(), answer.text("transfer-encoding")), (10 * LIMIT, Some("chunked")));
}

#[tokio::test]
async fn an_axum_handler_takes_its_call_as_an_argument() {
    let required =
        |Idempotent(call): Idempotent| async move { format!("{} {}", call.operation(), call.attempt()) };
    let optional = |call: Option<Idempotent>| async move { call.is_some().to_string() };
    let routes = || Router::new().route("/required", post(required)).route("/optional", post(optional));
    let guarded = builder().guard(|_| Guard::Optional).build().unwrap();
    let server = Server::start(routes().layer(guarded)).await;
    assert_eq!(server.ask(Request::post("/required", "k")).await.body, b"http 1");
    assert_eq!(server.ask(Request::post("/optional", "l")).await.body, b"true");
    assert_eq!(server.ask(Request::new("POST", "/optional")).await.body, b"false");
    let refused = server.ask(Request::new("POST", "/required")).await;
    assert_eq!(refused.status, 500);
    assert!(refused.json()["type"].as_str().unwrap().ends_with("misconfigured"));
}

#[tokio::test]
async fn the_host_counts_where_it_is_named_over_http_2_too() {
    let layer = builder().fingerprint(RequestFingerprint::new().with_header(axum::http::header::HOST));
    let mut service = layer.build().unwrap().layer(receipts());
    let mut ask = async |uri: &str, host: Option<&str>| {
        // Over HTTP/2, the host is the authority of the URI, and there is no `Host` header.
        let mut request = request(uri);
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
    let mut service = builder().build().unwrap().layer(receipts());
    let mut ask =
        async || *service.call(request("/pay")).await.unwrap().extensions().get::<Outcome>().unwrap();
    let before = std::time::SystemTime::now();
    assert!(matches!(ask().await, Outcome::Executed { attempt: 1, recovered: false, not_stored: None, .. }));
    let Outcome::Replayed { attempt: 1, completed_at, .. } = ask().await else { panic!("no replay") };
    assert!((before..=std::time::SystemTime::now()).contains(&completed_at), "{completed_at:?}");
}

#[test]
fn options_that_cannot_work_are_refused_when_the_layer_is_built() {
    let faults: [fn(Builder<MemoryStore>) -> Builder<MemoryStore>; 8] = [
        |builder| builder.ttl(Duration::ZERO),
        |builder| builder.lease(Duration::ZERO),
        |builder| builder.store_timeout(Duration::ZERO),
        |builder| builder.scope(" "),
        |builder| builder.documentation("not a uri"),
        |builder| builder.fingerprint(RequestFingerprint::new().without_member("no pointer")),
        |builder| builder.fail_open().on_crash(idem::OnCrash::InDoubt),
        |builder| builder.max_running(0),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        assert!(fault(builder()).build().is_err(), "{number}");
    }
    let corrected = builder().documentation("not a uri").max_running(0).long_operations("no path");
    let corrected = corrected.documentation("https://api.example/docs").max_running(5);
    assert!(corrected.long_operations("/operations").build().is_ok());
    assert!(builder().long_operations("https://api.example.com/v1/operations/").build().is_ok());
    for path in ["operations", "/operations?a=b", "/operations#a", "/oper ations", ""] {
        assert!(builder().long_operations(path).build().is_err(), "{path:?}");
    }
    assert!(builder().long_operations("/operations").fail_open().build().is_err());
    let refused = IdempotencyLayer::builder(MemoryStore::new()).build().map(drop).unwrap_err().to_string();
    assert!(refused.contains(".tenant(") && refused.contains(".shared_by_all_clients()"), "{refused}");
}

#[tokio::test]
async fn no_debug_and_no_problem_shows_a_key_or_a_body() {
    let layer = builder().tenant(account).build().unwrap();
    let body = idem::http::Body::from(Bytes::from("private"));
    assert!(!format!("{layer:?} {:?} {body:?}", layer.layer(())).contains("private"));
    let server = Server::start(Router::new().route("/pay", post(|| async {})).layer(layer)).await;
    let refused = server.ask(Request::post("/pay", "private\"x")).await;
    assert!(!String::from_utf8(refused.body).unwrap().contains("private"));
}

#[tokio::test]
async fn a_response_that_the_store_has_no_room_for_is_an_event_with_large_results_too() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(Arc::new(log.reopen().unwrap()));
    let _guard = tracing::subscriber::set_default(lines.finish());
    let builder = IdempotencyLayer::builder(MemoryStore::with_max_result_bytes(5)).shared_by_all_clients();
    let keep = |_, _| async { axum::http::Response::new(String::new()) };
    let layer = builder.large_results(keep).build().unwrap();
    let _ = layer.layer(receipts()).call(request("/pay")).await.unwrap();
    assert!(std::fs::read_to_string(log).unwrap().contains("event=\"not_stored\""));
}
