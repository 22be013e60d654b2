//! Tests of draft-ietf-httpapi-idempotency-key-header-07, sentence by sentence. Each test is named after its
//! section. Two tests are elsewhere: `tower_only.rs` tests section 2.3, and `replays.rs` tests section 2.6
//! for a request that already has an answer.

use std::time::Duration;

use idem::http::Guard;
use idem_test_servers::web::{Answer, Request};

use super::{Slow, with};

const DOCUMENTATION: &str = "https://api.example.com/docs/idempotency";

#[tokio::test]
async fn section_1_post_and_patch_are_made_fault_tolerant_and_other_methods_are_left_alone() {
    let (server, runs) = with(|builder| builder).await;
    for (method, is_guarded) in
        [("POST", true), ("PATCH", true), ("GET", false), ("PUT", false), ("DELETE", false)]
    {
        let before = runs.count();
        for is_again in [false, true] {
            let request =
                Request::new(method, "/payments").header("Idempotency-Key", format!("\"{method}\""));
            let answer = server.ask(request).await;
            assert_eq!((answer.status, answer.is_replay()), (201, is_guarded && is_again), "{method}");
        }
        assert_eq!(runs.count() - before, if is_guarded { 1 } else { 2 }, "{method}");
    }
}

#[tokio::test]
async fn section_2_1_the_value_is_one_string_and_anything_else_is_refused() {
    let (server, runs) = with(|builder| builder.guard(|_| Guard::Quoted)).await;
    for values in [&["abc"][..], &["\"a\"", "\"a\""], &["\"a\"", ""]] {
        let request = values.iter().fold(Request::new("POST", "/payments"), |request, value| {
            request.header("Idempotency-Key", value)
        });
        let answer = server.ask(request).await;
        assert_eq!((answer.status, answer.problem()), (400, "key-malformed".into()), "{values:?}");
    }
    assert_eq!(runs.count(), 0);
    let uuid = Request::post("/payments", "8e03978e-40d5-43e8-bc93-6894a57f9324");
    assert_eq!(server.ask(uuid).await.status, 201);
}

#[tokio::test]
async fn section_2_2_2_4_and_2_7_another_request_of_a_key_is_422_and_a_respelled_one_is_the_same() {
    let (server, runs) = with(|builder| builder.documentation(DOCUMENTATION)).await;
    let json = r#"{"amount":1,"currency":"EUR"}"#;
    assert_eq!(server.ask(Request::post("/payments?a=1", "k").json(json)).await.status, 201);
    for other in [
        Request::post("/payments?a=2", "k").json(json),
        Request::post("/declined?a=1", "k").json(json),
        Request::post("/payments?a=1", "k").json(r#"{"amount":2,"currency":"EUR"}"#),
        Request::post("/payments?a=1", "k").body(json),
        Request::new("PATCH", "/payments?a=1").header("Idempotency-Key", "\"k\"").json(json),
    ] {
        let refused = server.ask(other).await;
        assert_eq!((refused.status, refused.problem()), (422, "key-reused".into()));
        assert!(refused.text("link").unwrap().contains(DOCUMENTATION));
    }
    let respelled = Request::post("/payments?a=1", "k").json(r#"{ "currency": "EUR", "amount": 1 }"#);
    assert!(server.ask(respelled).await.is_replay(), "and no problem is recorded");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn section_2_6_and_2_7_a_concurrent_request_is_a_conflict_and_needs_no_correction() {
    let slow = Slow::start(|builder| builder.wait(Duration::ZERO).documentation(DOCUMENTATION)).await;
    let mut first = slow.begin("k").await;
    let refused = slow.server.ask(Request::post("/pay", "k")).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    assert!((1..=30).contains(&refused.retry_after()), "{refused:?}");
    assert!(refused.text("link").unwrap().contains(DOCUMENTATION));
    slow.gate.may_end.add_permits(1);
    let first = Answer::read(&mut first).await;
    let again = slow.server.ask(Request::post("/pay", "k")).await;
    assert_eq!((again.is_replay(), again.lasting()), (true, first.lasting()));
}

#[tokio::test]
async fn section_2_7_a_missing_key_is_400_with_a_link_to_the_documentation() {
    for (documentation, section) in [
        (DOCUMENTATION, "https://api.example.com/docs/idempotency#key-missing"),
        ("https://api.example.com/docs#", "https://api.example.com/docs#key-missing"),
        ("https://api.example.com/problems/", "https://api.example.com/problems/key-missing"),
    ] {
        let (server, runs) = with(|builder| builder.documentation(documentation)).await;
        let answer = server.ask(Request::new("POST", "/payments")).await;
        assert_eq!((answer.status, answer.problem(), runs.count()), (400, "key-missing".into(), 0));
        assert_eq!(answer.json()["type"], section);
        let link = format!("<{documentation}>; rel=\"describedby\"; type=\"text/html\"");
        assert_eq!(answer.text("link"), Some(link.as_str()));
        assert_eq!(answer.text("content-language"), Some("en"));
    }
}
