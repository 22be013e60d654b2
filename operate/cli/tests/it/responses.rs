//! Keys of the HTTP layer. Every later request gets the response that a person recorded.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use idem::http::{Body, IdempotencyLayer};
use idem::protocol::State;
use tower::{Layer as _, ServiceExt as _, service_fn};

use crate::idem_command::*;

/// The response to a request with this key: status, location, body, and whether it is a replay.
async fn asked(shop: &Shop, key: &str) -> (u16, Option<String>, Bytes, bool) {
    let layer = IdempotencyLayer::builder(shop.store.clone()).scope(SCOPE).shared_by_all_clients();
    let service = layer.build().unwrap().layer(service_fn(|_: Request<Body>| async {
        let response = Response::builder().status(201).header("location", "/payments/1");
        Ok::<_, Infallible>(response.body(Full::new(Bytes::from("paid"))).unwrap())
    }));
    let request = Request::post("/pay").header("idempotency-key", key).body(Full::new(Bytes::new())).unwrap();
    let response = service.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let location = parts.headers.get("location").map(|value| value.to_str().unwrap().to_owned());
    let replayed = parts.headers.contains_key("idempotency-replayed");
    (parts.status.as_u16(), location, body.collect().await.unwrap().to_bytes(), replayed)
}

#[tokio::test]
async fn a_request_in_doubt_is_completed_with_its_response() {
    let shop = Shop::new();
    // The record is in doubt and has no fingerprint of a request.
    bring(&shop.store, &key("/k"), State::InDoubt).await;
    let body = shop.folder().join("receipt.json");
    std::fs::write(&body, "{\"receipt\":7}").unwrap();
    let body = format!("@{}", body.display());
    let header = ["--header", "location: /payments/7", "--body", &body, "--unencrypted", "--yes"];
    shop.idem.run(&[&["resolve", "/k", "--http", "201"][..], &header].concat()).ended(0);
    let expected = (201, Some("/payments/7".to_owned()), Bytes::from("{\"receipt\":7}"), true);
    assert_eq!(asked(&shop, "k").await, expected);
}

#[tokio::test]
async fn a_response_is_shown_as_one_and_its_operation_takes_no_other_results() {
    let shop = Shop::new();
    assert_eq!(asked(&shop, "k").await.0, 201);
    let shown = shop.idem.run(&["show", "/k", "--result"]).ended(0);
    for text in ["HTTP 201", "location: /payments/1", "paid"] {
        assert!(shown.out.contains(text), "{shown:?}");
    }
    let shown = shop.idem.run(&["--json", "show", "/k", "--result"]).one();
    assert_eq!(shown["result"]["http"]["status"], 201);
    assert_eq!(shown["result"]["http"]["body"], "paid");
    bring(&shop.store, &key("/other"), State::InDoubt).await;
    let refused = shop.idem.run(&["resolve", "/other", "--completed", "1", "--yes"]).ended(3);
    assert!(refused.err.contains("--http"), "{refused:?}");
    bring(&shop.store, &key_of("function", "a"), State::Completed).await;
    bring(&shop.store, &key_of("function", "b"), State::InDoubt).await;
    shop.idem.run(&["resolve", "b", "--http", "200", "--yes"]).ended(3);
    for wrong in
        [&["--http", "99"][..], &["--http", "200", "--header", "no"], &["--header", "a: b", "--release"]]
    {
        shop.idem.run(&[&["resolve", "/other", "--yes"], wrong].concat()).ended(2);
    }
    let absent = &["resolve", "/other", "--http", "200", "--body", "@/no/such/file", "--yes"];
    let absent = shop.idem.run(absent).ended(2);
    assert!(absent.err.contains("cannot read the input"), "{absent:?}");
    assert_eq!(state_of(&shop.store, &key("/other")).await, Some(State::InDoubt));
}
