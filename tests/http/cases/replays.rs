//! Which responses are kept, and what a replay contains.

use axum::http::{HeaderName, StatusCode};
use axum::response::IntoResponse;
use idem::http::Recording;
use idem_test_servers::web::Request;

use super::{is_kept, pay, with};
use crate::support::Runs;

#[tokio::test]
async fn status_headers_and_body_are_replayed_exactly_and_what_is_for_one_client_or_denied_is_not() {
    let (server, runs) = with(|builder| builder.deny_headers([HeaderName::from_static("x-denied")])).await;
    let first = server.ask(Request::post("/payments", "k")).await;
    let again = server.ask(Request::post("/payments", "k")).await;
    for (name, value) in [("set-cookie", "session=private"), ("x-hop", "1"), ("x-denied", "1")] {
        assert_eq!((first.text(name), again.text(name)), (Some(value), None), "{name}");
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
async fn a_status_that_asks_for_another_try_releases_the_key_and_every_other_is_kept_unless_a_function_decides()
 {
    let of =
        |status: u16| Request::post("/payments", &status.to_string()).header("X-Status", status.to_string());
    let (server, _) = with(|builder| builder).await;
    for status in [200, 201, 202, 204, 301, 304, 400, 402, 404, 409, 410, 422, 451, 600, 999] {
        assert!(is_kept(&server, of(status)).await, "{status}");
    }
    for status in [401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 599] {
        assert!(!is_kept(&server, of(status)).await, "{status}");
    }
    let (server, _) = with(|builder| {
        builder.recording(|response| match response.status {
            StatusCode::BAD_GATEWAY => Some(Recording::Keep),
            StatusCode::NOT_FOUND => Some(Recording::Release),
            _ => None,
        })
    })
    .await;
    for (status, kept) in [(502, true), (404, false), (201, true), (500, false)] {
        assert_eq!(is_kept(&server, of(status)).await, kept, "{status}");
    }
}

#[tokio::test]
async fn a_marker_that_the_handler_sets_does_not_pass_for_a_replay() {
    let server = pay(|builder| builder, || async { ([("idempotency-replayed", "true")], "x") }).await;
    assert!(is_kept(&server, Request::post("/pay", "k")).await);
}

#[tokio::test]
async fn a_corrected_request_is_had_under_the_same_key_where_the_record_is_forgotten() {
    for by_status in [false, true] {
        let runs = Runs::default();
        let count = runs.clone();
        let handler = move |body: String| async move {
            let number = count.run();
            let status = match &*body {
                "right" => StatusCode::OK,
                // The first attempt fails, so its fingerprint stays in the record.
                "wrong" if number == 1 => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::UNPROCESSABLE_ENTITY,
            };
            let mut response = (status, number.to_string()).into_response();
            if !by_status && status == StatusCode::UNPROCESSABLE_ENTITY {
                response.extensions_mut().insert(Recording::Forget);
            }
            response
        };
        let options = |builder: idem::http::Builder<_>| match by_status {
            true => builder.forget_status(StatusCode::UNPROCESSABLE_ENTITY),
            false => builder,
        };
        let server = pay(options, handler).await;
        for (body, status) in [("wrong", 503), ("wrong", 422), ("bad", 422), ("right", 200)] {
            let answer = server.ask(Request::post("/pay", "k").body(body)).await;
            assert_eq!((answer.status, answer.is_replay()), (status, false), "{by_status} {body}");
        }
        assert!(server.ask(Request::post("/pay", "k").body("right")).await.is_replay());
        assert_eq!(server.ask(Request::post("/pay", "k").body("bad")).await.problem(), "key-reused");
        assert_eq!(runs.count(), 4);
    }
}
