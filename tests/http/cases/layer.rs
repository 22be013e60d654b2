//! Tests of what the HTTP layer records, replays and refuses, and of its settings, over real sockets.

use crate::framework::{Server, serve};
use crate::support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request as HttpRequest, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{any, post};
use idem::http::{Builder, IdempotencyLayer, Problem, Recording, RequestFingerprint};
use idem::protocol::{ClaimAnswer, Owner};
use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{Key, MemoryStore, RecordKey, Scope, SqliteStore, Store};
use idem_test_servers::web::{Answer, Request};
use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::TestRunner;
use support::Runs;
use tokio::sync::Semaphore;
use tower_layer::Layer as _;

/// A server whose handler counts its runs and answers with the status in `x-status` and headers of every kind.
async fn api<St: Store>(layer: IdempotencyLayer<St>) -> (Server, Runs) {
    let runs = Runs::default();
    let handler = |State(runs): State<Runs>, request: HeaderMap| async move {
        let number = runs.run();
        let status = request.get("x-status").map_or(201, |status| status.to_str().unwrap().parse().unwrap());
        let mut headers = HeaderMap::new();
        headers.insert("location", HeaderValue::from_str(&format!("/payments/{number}")).unwrap());
        headers.append("link", HeaderValue::from_static("</a>; rel=\"a\""));
        headers.append("link", HeaderValue::from_static("</b>; rel=\"b\""));
        headers.insert("x-bytes", HeaderValue::from_bytes(b"caf\xe9").unwrap());
        headers.insert("set-cookie", HeaderValue::from_static("session=private"));
        headers.insert("www-authenticate", HeaderValue::from_static("Basic"));
        headers.insert("x-hop", HeaderValue::from_static("1"));
        headers.insert("connection", HeaderValue::from_static("x-hop"));
        (StatusCode::from_u16(status).unwrap(), headers, format!("receipt {number}")).into_response()
    };
    let router = Router::new().route("/{*path}", any(handler)).with_state(runs.clone());
    (serve(router, layer).await, runs)
}

fn builder() -> Builder<MemoryStore> {
    IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients()
}

async fn with(options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>) -> (Server, Runs) {
    api(options(builder()).build().unwrap()).await
}

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
async fn which_responses_are_kept_can_be_set_by_status_and_by_a_hook() {
    let ask = |status: u16| Request::post("/pay", &status.to_string()).header("X-Status", status.to_string());
    let replays = async |server: &Server, status| {
        server.ask(ask(status)).await;
        server.ask(ask(status)).await.is_replay()
    };
    let (server, _) =
        with(|builder| builder.keep_status(StatusCode::BAD_GATEWAY).release_status(StatusCode::NOT_FOUND))
            .await;
    assert!(replays(&server, 502).await && !replays(&server, 404).await);
    assert!(replays(&server, 201).await && !replays(&server, 500).await);
    let (server, _) = with(|builder| builder.keep_if(|response| response.status == 503)).await;
    assert!(replays(&server, 503).await && !replays(&server, 201).await);
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
async fn header_lists_and_the_name_of_the_marker_can_be_set() {
    let (server, _) = with(|builder| {
        builder
            .allow_headers([HeaderName::from_static("location"), HeaderName::from_static("link")])
            .deny_headers([HeaderName::from_static("link")])
            .replay_marker(HeaderName::from_static("x-again"))
    })
    .await;
    server.ask(Request::post("/pay", "k")).await;
    let again = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((again.text("location"), again.text("x-again")), (Some("/payments/1"), Some("true")));
    assert!(again.all("link").is_empty() && again.all("x-bytes").is_empty() && !again.is_replay());
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
async fn header_name_methods_and_syntax_can_be_set() {
    let (server, runs) = with(|builder| {
        builder.header(HeaderName::from_static("x-request-id")).methods([Method::PUT]).max_key_bytes(4)
    })
    .await;
    let ask = |method: &str, key: &str| Request::new(method, "/pay").header("X-Request-Id", key);
    server.ask(ask("PUT", "abcd")).await;
    assert!(server.ask(ask("PUT", "\"abcd\"")).await.is_replay());
    assert_eq!(server.ask(ask("PUT", "abcde")).await.problem(), "key-malformed");
    assert_eq!(
        server.ask(Request::new("PUT", "/pay").header("Idempotency-Key", "a")).await.problem(),
        "key-missing"
    );
    assert_eq!(server.ask(ask("POST", "abcd")).await.status, 201);
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn parts_of_the_fingerprint_can_be_left_out() {
    let (server, _) = with(|builder| {
        builder.fingerprint(RequestFingerprint::new().without_query().without_member("/sent_at"))
    })
    .await;
    server.ask(Request::post("/pay?try=1", "k").json(r#"{"amount":1,"sent_at":1}"#)).await;
    let again = server.ask(Request::post("/pay?try=2", "k").json(r#"{"sent_at":2,"amount":1}"#)).await;
    assert!(again.is_replay());
    let other = server.ask(Request::post("/pay?try=2", "k").json(r#"{"sent_at":2,"amount":2}"#)).await;
    assert_eq!(other.problem(), "key-reused");
}

#[tokio::test]
async fn json_that_can_be_read_in_two_ways_counts_by_its_bytes() {
    let (server, _) = with(|builder| builder).await;
    for (key, one, other) in [
        ("members", r#"{"a":1,"a":2}"#, r#"{"a":2,"a":2}"#),
        ("large", "[9007199254740992]", "[9007199254740993]"),
        ("precise", "[0.1]", "[0.10000000000000000001]"),
        ("infinite", "[1e400]", "[1e401]"),
        ("surrogate", r#"["\ud800"]"#, r#"["\ud801"]"#),
    ] {
        assert_eq!(server.ask(Request::post("/pay", key).json(one)).await.status, 201);
        assert!(server.ask(Request::post("/pay", key).json(one)).await.is_replay(), "{key}");
        assert_eq!(server.ask(Request::post("/pay", key).json(other)).await.problem(), "key-reused", "{key}");
    }
}

fn account(request: &Parts) -> Option<String> {
    Some(request.headers.get("x-account")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn two_tenants_with_one_key_never_meet_however_they_are_spelled() {
    let long = "x".repeat(3_000);
    for digests in [false, true] {
        let (server, runs) = with(|builder| {
            let builder = builder.tenant(account);
            if digests { builder.digest_keys() } else { builder }
        })
        .await;
        let ask = |tenant: &str, key: &str| {
            Request::new("POST", "/pay")
                .header("X-Account", tenant)
                .header("Idempotency-Key", format!("\"{key}\""))
        };
        let pairs = [
            ("a", "b/c"),
            ("a/b", "c"),
            ("a%2Fb", "c"),
            ("A", "b/c"),
            (&long[..2_999], "k"),
            (&long, "k"),
            (&long, "kk"),
            ("sha256:00", "k"),
        ];
        for (done, (tenant, key)) in pairs.into_iter().enumerate() {
            assert!(!server.ask(ask(tenant, key)).await.is_replay(), "{digests} {done}");
        }
        for (tenant, key) in pairs {
            assert!(server.ask(ask(tenant, key)).await.is_replay());
        }
        assert_eq!(runs.count(), pairs.len());
        for nobody in [Request::post("/pay", "k"), ask("", "k")] {
            let refused = server.ask(nobody).await;
            assert_eq!((refused.status, refused.problem()), (400, "tenant-missing".into()));
        }
        assert_eq!(runs.count(), pairs.len());
    }
}

#[tokio::test]
async fn the_longest_key_of_the_longest_tenant_is_stored_whatever_its_escaping_costs() {
    let (server, runs) = with(|builder| builder.tenant(account)).await;
    for (done, character) in ["\\\"", "\\\\", " ", "%", "/", "~"].into_iter().enumerate() {
        let request = Request::new("POST", "/pay")
            .header("X-Account", "%".repeat(2_000))
            .header("Idempotency-Key", format!("\"{}\"", character.repeat(255)));
        assert_eq!(server.ask(request.clone()).await.status, 201, "{character}");
        assert!(server.ask(request).await.is_replay());
        assert_eq!(runs.count(), done + 1);
    }
}

#[tokio::test]
async fn keys_and_tenants_are_stored_as_digests_where_the_builder_says_so() {
    let store = MemoryStore::new();
    let plain = RecordKey::new(Scope::new("pay").unwrap(), Key::new("one/secret").unwrap());
    let builder = IdempotencyLayer::builder(store.clone()).scope("pay").tenant(account);
    let (server, _) = api(builder.clone().digest_keys().build().unwrap()).await;
    let request = Request::post("/pay", "secret").header("X-Account", "one");
    server.ask(request.clone()).await;
    assert!(server.ask(request.clone()).await.is_replay());
    assert!(store.get(&plain).await.unwrap().is_none());
    let (server, _) = api(builder.build().unwrap()).await;
    server.ask(request).await;
    assert!(store.get(&plain).await.unwrap().is_some());
}

#[tokio::test]
async fn two_layers_of_one_store_meet_only_under_one_scope() {
    let store = MemoryStore::new();
    let under = async |scope: &'static str| {
        let layer =
            IdempotencyLayer::builder(store.clone()).scope(scope).shared_by_all_clients().build().unwrap();
        let (server, _) = api(layer).await;
        server.ask(Request::post("/pay", "k")).await.is_replay()
    };
    assert!(!under("one").await);
    assert!(!under("other").await);
    assert!(under("one").await);
}

#[tokio::test]
async fn a_store_that_is_down_is_503_in_time_with_a_time_to_wait_and_the_key_is_not_lost() {
    let store = FaultStore::new(MemoryStore::new());
    let layer = IdempotencyLayer::builder(store.clone())
        .shared_by_all_clients()
        .store_timeout(Duration::from_millis(300));
    let (server, runs) = api(layer.build().unwrap()).await;
    for fault in [Fault::FailBefore, Fault::HangBefore] {
        store.always(OperationKind::Claim, Some(fault));
        let begin = Instant::now();
        let refused = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((refused.status, refused.problem()), (503, "store-unavailable".into()));
        assert!(refused.retry_after() >= 1 && begin.elapsed() < Duration::from_secs(5));
    }
    store.always(OperationKind::Claim, None);
    assert_eq!(runs.count(), 0);
    assert!(!server.ask(Request::post("/pay", "k")).await.is_replay());
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
}

#[tokio::test]
async fn failing_open_runs_unprotected_while_the_store_is_down() {
    let store = FaultStore::new(MemoryStore::new());
    let layer = IdempotencyLayer::builder(store.clone()).shared_by_all_clients().fail_open().build().unwrap();
    let (server, runs) = api(layer).await;
    store.always(OperationKind::Claim, Some(Fault::FailBefore));
    for _ in 0..2 {
        let answer = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((answer.status, answer.is_replay()), (201, false));
    }
    assert_eq!(runs.count(), 2);
}

/// A server whose handler waits until the test lets it end.
async fn slow(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
) -> (Server, Arc<Semaphore>, Arc<Semaphore>) {
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (seen, gate) = (begun.clone(), may_end.clone());
    let handler = move || async move {
        seen.add_permits(1);
        gate.acquire().await.unwrap().forget();
        "done"
    };
    let layer = options(builder()).build().unwrap();
    (serve(Router::new().route("/pay", post(handler)), layer).await, begun, may_end)
}

#[tokio::test]
async fn a_duplicate_waits_for_the_response_where_the_policy_says_so() {
    let (server, begun, may_end) = slow(|builder| builder.wait(Duration::from_secs(20))).await;
    let mut first = Request::post("/pay", "k").send(server.address).await;
    begun.acquire().await.unwrap().forget();
    let mut second = Request::post("/pay", "k").send(server.address).await;
    let other = server.ask(Request::post("/pay", "k").body("other")).await;
    assert_eq!(other.problem(), "key-reused", "it need not wait to be refused");
    may_end.add_permits(1);
    assert!(!Answer::read(&mut first).await.is_replay());
    let second = Answer::read(&mut second).await;
    assert_eq!((&second.body[..], second.is_replay()), (&b"done"[..], true));
}

#[tokio::test]
async fn a_wait_that_is_too_short_ends_as_in_flight_and_a_waiter_that_leaves_starts_nothing() {
    let (server, begun, may_end) = slow(|builder| builder.wait(Duration::from_millis(50))).await;
    let mut first = Request::post("/pay", "k").send(server.address).await;
    begun.acquire().await.unwrap().forget();
    let refused = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((refused.status, refused.problem()), (409, "in-flight".into()));
    drop(Request::post("/pay", "k").send(server.address).await);
    may_end.add_permits(1);
    assert_eq!(Answer::read(&mut first).await.body, b"done");
    assert!(server.ask(Request::post("/pay", "k")).await.is_replay());
    assert_eq!(begun.available_permits(), 0);
}

#[tokio::test]
async fn the_time_to_wait_is_no_more_than_the_lease_in_whole_seconds_and_at_least_one() {
    for (lease, most) in
        [(Duration::from_secs(3), 3), (Duration::from_millis(1_500), 2), (Duration::from_millis(400), 1)]
    {
        let (server, begun, may_end) = slow(|builder| builder.lease(lease)).await;
        let mut first = Request::post("/pay", "k").send(server.address).await;
        begun.acquire().await.unwrap().forget();
        let told = server.ask(Request::post("/pay", "k")).await.retry_after();
        assert!((1..=most).contains(&told), "{lease:?}: {told}");
        may_end.add_permits(1);
        Answer::read(&mut first).await;
    }
}

#[tokio::test]
async fn a_panic_is_in_doubt_where_the_policy_says_so_and_nothing_runs_again() {
    let runs = Runs::default();
    let count = runs.clone();
    let handler = move || async move {
        assert_ne!(count.run(), 1, "the first one panics");
    };
    let layer = builder().on_crash(idem::OnCrash::InDoubt).build().unwrap();
    let server = serve(Router::new().route("/pay", post(handler)), layer).await;
    let failed = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((failed.status, failed.problem()), (500, "handler-failed".into()));
    let detail = failed.json()["detail"].as_str().unwrap().to_owned();
    assert!(!detail.contains("Send") && detail.contains("not processed again"), "{detail}");
    for _ in 0..2 {
        let refused = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
    }
    assert_eq!(runs.count(), 1);
}

fn record_key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("http").unwrap(), Key::new(format!("/{key}")).unwrap())
}

#[tokio::test]
async fn a_record_that_holds_no_response_is_kept_and_nothing_runs_again() {
    let store = MemoryStore::new();
    let owner = Owner::random();
    let ClaimAnswer::Granted(grant) =
        store.claim(&record_key("k"), &support::claim_request(owner)).await.unwrap()
    else {
        panic!("not granted")
    };
    store.complete(&record_key("k"), &support::completion(owner, grant, "{}")).await.unwrap();
    let (server, runs) = api(IdempotencyLayer::shared_by_all_clients(store)).await;
    for _ in 0..2 {
        let refused = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains("cannot read") && !detail.contains("too large"), "{detail}");
    }
    assert_eq!(runs.count(), 0);
}

#[tokio::test]
async fn a_record_that_cannot_be_read_is_in_doubt_and_nothing_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    let (server, runs) =
        api(IdempotencyLayer::shared_by_all_clients(SqliteStore::open(&path).unwrap())).await;
    assert_eq!(server.ask(Request::post("/pay", "k")).await.status, 201);
    let sqlite = rusqlite::Connection::open(&path).unwrap();
    assert_eq!(sqlite.execute("UPDATE idem_records SET state = 'gone'", ()).unwrap(), 1);
    for _ in 0..2 {
        let refused = server.ask(Request::post("/pay", "k")).await;
        assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(!detail.contains("Nothing was processed") && !detail.contains("again after"), "{detail}");
        assert_eq!(refused.text("retry-after"), None);
    }
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_handler_that_lost_its_claim_gives_its_client_the_recorded_response() {
    let store = MemoryStore::new();
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (seen, gate, runs) = (begun.clone(), may_end.clone(), Runs::default());
    let handler = move || async move {
        let number = runs.run();
        if number == 1 {
            seen.add_permits(1);
            gate.acquire().await.unwrap().forget();
        }
        format!("receipt {number}")
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(store.clone())).await;
    let mut late = Request::post("/pay", "k").send(server.address).await;
    begun.acquire().await.unwrap().forget();
    // As if the lease had run out while the process was stopped.
    store.forget(&record_key("k")).await.unwrap();
    let successor = server.ask(Request::post("/pay", "k")).await;
    assert_eq!((&successor.body[..], successor.is_replay()), (&b"receipt 2"[..], false));
    may_end.add_permits(1);
    let late = Answer::read(&mut late).await;
    assert_eq!((late.lasting(), late.is_replay()), (successor.lasting(), true));
}

#[tokio::test]
async fn the_type_of_a_problem_can_be_set() {
    let (server, _) = with(|builder| {
        builder
            .problem_base("https://api.example.com/problems/")
            .problem_type(Problem::KeyReused, "tag:x,2026:reused")
    })
    .await;
    let missing = server.ask(Request::new("POST", "/pay")).await;
    assert_eq!(missing.json()["type"], "https://api.example.com/problems/key-missing");
    server.ask(Request::post("/pay", "k")).await;
    let reused = server.ask(Request::post("/pay", "k").body("other")).await;
    assert_eq!(reused.json()["type"], "tag:x,2026:reused");
}

#[tokio::test]
async fn a_problem_is_never_stored() {
    let (server, runs) = with(|builder| builder.max_request_bytes(3)).await;
    assert_eq!(server.ask(Request::post("/pay", "k").body("abcd")).await.status, 413);
    assert_eq!(server.ask(Request::post("/pay", "k").body("abc")).await.status, 201);
    assert_eq!(server.ask(Request::post("/pay", "k").body("xyz")).await.status, 422);
    assert!(server.ask(Request::post("/pay", "k").body("abc")).await.is_replay());
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_handler_knows_its_call_and_has_a_key_for_the_next_service() {
    let handler = || async {
        let context = idem::context().unwrap();
        format!("{} {} {}", context.operation(), context.attempt(), context.downstream_key("gateway").len())
    };
    let router = Router::new().route("/pay", post(handler));
    let server = serve(router, IdempotencyLayer::shared_by_all_clients(MemoryStore::new())).await;
    assert_eq!(server.ask(Request::post("/pay", "k")).await.body, b"http 1 32");
}

#[tokio::test]
async fn the_openapi_fragment_says_what_is_answered() {
    let fragment: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/idempotency.openapi.json")).unwrap();
    let components = &fragment["components"];
    assert_eq!(components["parameters"]["IdempotencyKey"]["name"], "Idempotency-Key");
    let types =
        components["schemas"]["IdempotencyProblem"]["properties"]["type"]["pattern"].as_str().unwrap();
    let names: Vec<&str> = Problem::ALL.iter().map(|problem| problem.name()).collect();
    assert_eq!(types, format!("({})$", names.join("|")));
    let page = include_str!("../../../docs/http.md");
    for problem in Problem::ALL {
        let (name, status) = (problem.name(), problem.status().as_u16());
        assert!(
            page.contains(&format!("{status} `{name}`")) || page.contains(&format!("`{name}`")),
            "{name}"
        );
        assert!(types.contains(problem.name()), "{problem:?}");
        let described = components["responses"].to_string().contains(&format!("`{}`", problem.name()));
        assert!(described, "{problem:?}");
    }
    let (server, _) = with(|builder| builder).await;
    let problem = server.ask(Request::new("POST", "/pay")).await;
    for required in components["schemas"]["IdempotencyProblem"]["required"].as_array().unwrap() {
        assert!(problem.json().get(required.as_str().unwrap()).is_some(), "{required}");
    }
}

#[tokio::test]
async fn every_key_that_the_openapi_fragment_describes_is_taken_and_the_longest_is_described() {
    let fragment: serde_json::Value =
        serde_json::from_str(include_str!("../../../docs/idempotency.openapi.json")).unwrap();
    let schema = &fragment["components"]["parameters"]["IdempotencyKey"]["schema"];
    let pattern = schema["pattern"].as_str().unwrap();
    let whole = pattern.strip_prefix('^').and_then(|pattern| pattern.strip_suffix('$')).unwrap();
    let values = proptest::string::string_regex(whole).unwrap();
    let mut runner = TestRunner::deterministic();
    let (server, _) = with(|builder| builder).await;
    let ask = async |value: &str| {
        server.ask(Request::new("POST", "/pay").header("Idempotency-Key", value)).await.status
    };
    for _ in 0..100 {
        let value = values.new_tree(&mut runner).unwrap().current();
        assert_eq!(ask(&value).await, 201, "{value}");
    }
    let longest = format!("\"{}\"", "\\\\".repeat(255));
    assert_eq!(ask(&longest).await, 201);
    assert_eq!(schema["maxLength"], longest.len());
    assert!(pattern.contains("{1,255}"), "{pattern}");
}

#[test]
fn options_that_cannot_work_are_refused_when_the_layer_is_built() {
    let faults: [fn(Builder<MemoryStore>) -> Builder<MemoryStore>; 9] = [
        |builder| builder.ttl(Duration::ZERO),
        |builder| builder.lease(Duration::ZERO),
        |builder| builder.store_timeout(Duration::ZERO),
        |builder| builder.scope(" "),
        |builder| builder.max_key_bytes(0),
        |builder| builder.max_key_bytes(953),
        |builder| builder.documentation("not a uri"),
        |builder| builder.fingerprint(RequestFingerprint::new().without_member("no pointer")),
        |builder| builder.fail_open().on_crash(idem::OnCrash::InDoubt),
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        let built = fault(builder()).build();
        assert!(built.is_err(), "{number}");
    }
    assert!(builder().max_key_bytes(952).build().is_ok());
}

#[tokio::test]
async fn no_debug_and_no_problem_shows_a_key_or_a_body() {
    let layer = IdempotencyLayer::builder(MemoryStore::new()).tenant(account).build().unwrap();
    let request =
        HttpRequest::post("/pay").body(idem::http::Body::from(axum::body::Bytes::from("private"))).unwrap();
    assert!(!format!("{layer:?} {:?} {:?}", layer.layer(()), request.body()).contains("private"));
    let refused = api(layer).await.0.ask(Request::post("/pay", "private\"x")).await;
    assert!(!String::from_utf8(refused.body).unwrap().contains("private"));
}
