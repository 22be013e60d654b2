//! Which responses are kept, and what a replay has of them.

use axum::Router;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::IntoResponse;
use axum::routing::post;
use idem::MemoryStore;
use idem::http::{IdempotencyLayer, Recording};
use idem_test_servers::web::Request;

use super::with;
use crate::framework::{Server, serve};
use crate::support::Runs;

#[tokio::test]
async fn status_headers_and_body_are_replayed_exactly_and_what_is_for_one_client_is_not() {
    let (server, runs) = with(|builder| builder).await;
    let first = server.ask(Request::post("/payments", "k")).await;
    let again = server.ask(Request::post("/payments", "k")).await;
    assert_eq!(first.all("set-cookie"), [b"session=private"]);
    assert_eq!(first.all("x-hop"), [b"1"]);
    for name in ["set-cookie", "x-hop"] {
        assert!(again.all(name).is_empty(), "{name}");
    }
    for answer in [&first, &again] {
        assert_eq!((answer.status, &answer.body[..]), (201, &b"receipt 1"[..]));
        assert_eq!(answer.all("link"), [&b"</a>; rel=\"a\""[..], b"</b>; rel=\"b\""]);
        assert_eq!(answer.all("x-bytes"), [b"caf\xe9"]);
        assert_eq!(answer.text("location"), Some("/payments/1"));
        assert_eq!(answer.all("date").len(), 1);
    }
    assert_eq!(
        (first.text("idempotency-replayed"), again.text("idempotency-replayed")),
        (None, Some("true"))
    );
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_status_that_asks_for_another_try_releases_the_key_and_every_other_is_kept() {
    let (server, _) = with(|builder| builder).await;
    for status in [200, 201, 202, 204, 301, 304, 400, 402, 404, 409, 410, 422, 451, 600, 999] {
        let request = Request::post("/payments", &status.to_string()).header("X-Status", status.to_string());
        let (first, again) = (server.ask(request.clone()).await, server.ask(request).await);
        assert_eq!((first.status, again.status, again.is_replay()), (status, status, true));
    }
    for status in [401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 599] {
        let request = Request::post("/payments", &status.to_string()).header("X-Status", status.to_string());
        let (first, again) = (server.ask(request.clone()).await, server.ask(request).await);
        assert_eq!((first.status, again.status, again.is_replay()), (status, status, false));
        assert_ne!(first.body, again.body);
    }
}

#[tokio::test]
async fn which_responses_are_kept_can_be_set_by_a_function_of_the_head() {
    let ask = |status: u16| Request::post("/pay", &status.to_string()).header("X-Status", status.to_string());
    let replays = async |server: &Server, status| {
        server.ask(ask(status)).await;
        server.ask(ask(status)).await.is_replay()
    };
    let (server, _) = with(|builder| {
        builder.recording(|response| match response.status {
            StatusCode::BAD_GATEWAY => Some(Recording::Keep),
            StatusCode::NOT_FOUND => Some(Recording::Release),
            _ => None,
        })
    })
    .await;
    assert!(replays(&server, 502).await && !replays(&server, 404).await);
    assert!(replays(&server, 201).await && !replays(&server, 500).await);
}

#[tokio::test]
async fn a_handler_can_opt_out_by_an_extension_of_its_response() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let mut response = count.run().to_string().into_response();
        if runs.count() == 1 {
            response.extensions_mut().insert(Recording::Release);
        }
        response
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    for (body, replay) in [("1", false), ("2", false), ("2", true)] {
        let answer = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((&answer.body[..], answer.is_replay()), (body.as_bytes(), replay));
    }
}

#[tokio::test]
async fn a_header_that_is_denied_is_not_replayed() {
    let (server, _) = with(|builder| builder.deny_headers([HeaderName::from_static("link")])).await;
    server.ask(Request::post("/pay", "k")).await;
    let again = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((again.is_replay(), again.text("location")), (true, Some("/payments/1")));
    assert!(again.all("link").is_empty());
}

#[tokio::test]
async fn a_marker_that_the_handler_sets_does_not_pass_for_a_replay() {
    let handler = || async { ([("idempotency-replayed", "true")], "x") };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    assert!(!server.ask(Request::post("/pay", "k")).await.is_replay());
    assert_eq!(server.ask(Request::post("/pay", "k")).await.text("idempotency-replayed"), Some("true"));
}

#[tokio::test]
async fn what_was_true_for_one_moment_is_not_replayed() {
    const MOMENTARY: [&str; 13] = [
        "age",
        "ratelimit",
        "ratelimit-policy",
        "ratelimit-remaining",
        "x-ratelimit-reset",
        "x-rate-limit-limit",
        "request-id",
        "x-request-id",
        "x-correlation-id",
        "server-timing",
        "traceparent",
        "traceresponse",
        "x-amzn-trace-id",
    ];
    let handler = || async {
        let names = MOMENTARY.iter().chain(["retry-after", "expires", "x-rating"].iter());
        let headers = names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")));
        (headers.collect::<HeaderMap>(), "done")
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    let first = server.ask(Request::post("/pay", "k")).await;
    let again = server.ask(Request::post("/pay", "k")).await;
    for name in MOMENTARY {
        assert_eq!((first.text(name), again.text(name)), (Some("1"), None), "{name}");
    }
    for name in ["retry-after", "expires", "x-rating"] {
        assert_eq!(again.text(name), Some("1"), "{name}");
    }
}

#[tokio::test]
async fn a_corrected_request_is_had_under_the_same_key_where_the_record_is_forgotten() {
    let handler = |runs: axum::extract::State<Runs>, body: String| async move {
        let number = runs.0.run();
        let status = if body == "right" { StatusCode::OK } else { StatusCode::UNPROCESSABLE_ENTITY };
        let mut response = (status, number.to_string()).into_response();
        match &*body {
            "wrong" => drop(response.extensions_mut().insert(Recording::Forget)),
            "down" => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
            _ => {}
        }
        response
    };
    for by_status in [false, true] {
        let runs = Runs::default();
        let router = Router::new().route("/pay", post(handler)).with_state(runs.clone());
        let builder = IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients();
        let builder =
            if by_status { builder.forget_status(StatusCode::UNPROCESSABLE_ENTITY) } else { builder };
        let server = serve(router, builder.build().unwrap()).await;
        let wrong = if by_status { "bad" } else { "wrong" };
        // Also after another attempt, whose fingerprint is in the record.
        for (body, status) in [(wrong, 422), (wrong, 422), ("right", 200)] {
            let answer = server.ask(Request::post("/pay", "k").body(body)).await;
            assert_eq!((answer.status, answer.is_replay()), (status, false), "{by_status} {body}");
        }
        assert!(server.ask(Request::post("/pay", "k").body("right")).await.is_replay());
        assert_eq!(server.ask(Request::post("/pay", "k").body("down")).await.problem(), "key-reused");
        assert_eq!(runs.count(), 3);
    }
}

#[tokio::test]
async fn a_record_of_a_second_attempt_is_forgotten_with_its_fingerprint() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        let mut response = StatusCode::SERVICE_UNAVAILABLE.into_response();
        if count.run() > 1 {
            response.extensions_mut().insert(Recording::Forget);
        }
        response
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    for body in ["one", "one", "other"] {
        assert_eq!(server.ask(Request::post("/pay", "k").body(body)).await.status, 503, "{body}");
    }
}
