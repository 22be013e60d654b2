//! `twice` around services: handlers with a planted fault are found, and the message names them; handlers without one pass.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Request, StatusCode};
use axum::routing::{get, post};
use axum::{Router, http};
use futures_util::FutureExt as _;
use idem_http::IdempotencyLayer;
use idem_runtime::{Error, MemoryStore, OnCrash, Operation};
use idem_testing::{Twice, twice};
use tower::ServiceExt as _;

use crate::twice::message;

#[derive(Clone, Default)]
struct Shop {
    store: MemoryStore,
    charges: Arc<AtomicU64>,
    seen: Arc<Mutex<HashSet<String>>>,
}

impl Shop {
    /// Charges a card, as a slow service does: it waits before and after.
    async fn charge(&self) -> u64 {
        tokio::task::yield_now().await;
        let number = self.charges.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::task::yield_now().await;
        number
    }

    fn charges(&self) -> u64 {
        self.charges.load(Ordering::SeqCst)
    }

    /// The routes behind the layer.
    fn guarded(&self, routes: Router<Self>) -> Twice<Router> {
        let layer = IdempotencyLayer::shared_by_all_clients(self.store.clone());
        self.watched(routes.route_layer(layer))
    }

    fn watched(&self, routes: Router<Self>) -> Twice<Router> {
        let shop = self.clone();
        twice(routes.with_state(self.clone())).effects(move || std::future::ready(shop.charges()))
    }
}

fn request(path: &str) -> Request<Body> {
    Request::post(path).header("Idempotency-Key", "k-1").body(Body::from("7")).unwrap()
}

/// The status and the body of an answer.
async fn answer(app: &Twice<Router>, request: Request<Body>) -> (StatusCode, String) {
    let response = app.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// What `twice` says of a handler.
async fn fault(app: &Twice<Router>, path: &str) -> String {
    message(AssertUnwindSafe(answer(app, request(path))).catch_unwind().await.expect_err("no fault"))
}

#[tokio::test]
async fn a_handler_behind_the_layer_passes_and_its_test_sees_one_answer_and_one_effect() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>| async move {
        (StatusCode::CREATED, format!("charge {}", shop.charge().await))
    };
    let app = shop.guarded(Router::new().route("/payments", post(pay)));
    assert_eq!(answer(&app, request("/payments")).await, (StatusCode::CREATED, "charge 1".into()));
    assert_eq!(answer(&app, request("/payments")).await, (StatusCode::CREATED, "charge 1".into()));
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn a_refusal_passes_and_a_request_without_a_key_arrives_once() {
    let shop = Shop::default();
    let refuse = || async { (StatusCode::UNPROCESSABLE_ENTITY, "no such card") };
    let look = |State(shop): State<Shop>| async move { shop.charge().await.to_string() };
    let app = shop.guarded(Router::new().route("/payments", post(refuse)).route("/look", get(look)));
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::UNPROCESSABLE_ENTITY);
    let plain = Request::get("/look").body(Body::empty()).unwrap();
    assert_eq!(answer(&app, plain).await, (StatusCode::OK, "1".into()));
}

#[tokio::test]
async fn an_outage_is_answered_as_one_by_the_last_answer() {
    let app =
        Shop::default().guarded(Router::new().route("/payments", post(|| async { StatusCode::BAD_GATEWAY })));
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::BAD_GATEWAY);
}

#[tokio::test]
async fn a_handler_that_charges_and_then_fails_once_is_found() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>| async move {
        if shop.charge().await == 1 { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::CREATED }
    };
    let app = shop.guarded(Router::new().route("/payments", post(pay)));
    let message = fault(&app, "/payments?card=4242").await;
    assert!(
        message.starts_with("POST /payments did something twice: the effects went from 0 to 2"),
        "{message}"
    );
    assert!(!message.contains("k-1") && !message.contains("4242"), "{message}");
}

#[tokio::test]
async fn a_handler_outside_of_the_layer_is_found() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>| async move {
        shop.charges.fetch_add(1, Ordering::SeqCst);
        "paid"
    };
    let message = fault(&shop.watched(Router::new().route("/payments", post(pay))), "/payments").await;
    let expected = "POST /payments did something twice: the effects went from 0 to 2 when the request came twice at the same time; \
                    one request may raise them by one";
    assert_eq!(message, expected);
}

#[tokio::test]
async fn a_handler_that_looks_first_and_writes_later_is_found_by_two_requests_at_the_same_time() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>, headers: http::HeaderMap| async move {
        let key = headers["idempotency-key"].to_str().unwrap().to_owned();
        if !shop.seen.lock().unwrap().contains(&key) {
            shop.charge().await;
            shop.seen.lock().unwrap().insert(key);
        }
        "paid"
    };
    let app = shop.watched(Router::new().route("/payments", post(pay))).unbroken();
    let message = fault(&app, "/payments").await;
    assert!(message.contains("0 to 2 when the request came twice at the same time; "), "{message}");
}

#[tokio::test]
async fn an_effect_for_every_request_is_found_when_the_request_comes_again() {
    let shop = Shop::default();
    let answered = Arc::new(AtomicU64::new(0));
    // The first pair makes one charge, the third request another.
    let pay = move |State(shop): State<Shop>| async move {
        if answered.fetch_add(1, Ordering::SeqCst) != 1 {
            shop.charges.fetch_add(1, Ordering::SeqCst);
        }
        "paid"
    };
    let message = fault(&shop.watched(Router::new().route("/payments", post(pay))), "/payments").await;
    let expected = "the effects went from 0 to 1, and to 2 when the request came again after its answer";
    assert!(message.ends_with(expected), "{message}");
}

#[tokio::test]
async fn an_idempotent_call_in_the_handler_is_found_that_a_broken_connection_drops_after_its_effect() {
    for policy in [OnCrash::Rerun, OnCrash::InDoubt] {
        let shop = Shop::default();
        let pay = move |State(shop): State<Shop>| async move {
            let charge = Operation::new("payments.charge").on_crash(policy);
            let call = charge.run(&shop.store, "order-42", async || Ok::<_, Error>(shop.charge().await));
            call.await.map(|number| format!("charge {number}"))
        };
        let app = shop.watched(Router::new().route("/payments", post(pay)));
        if policy == OnCrash::Rerun {
            let message = fault(&app, "/payments").await;
            assert!(message.contains("came twice at the same time and its connection broke"), "{message}");
        } else {
            // In doubt: nothing happens twice, and the test sees that no answer came.
            assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::CONFLICT);
            assert!(shop.charges() <= 1);
        }
        let shop = Shop::default();
        let app = Twice::unbroken(shop.watched(Router::new().route("/payments", post(pay))));
        assert_eq!(answer(&app, request("/payments")).await, (StatusCode::OK, "charge 1".into()));
    }
}

#[tokio::test]
async fn a_test_in_which_no_request_was_guarded_fails_and_says_what_to_write() {
    let routes = || Router::new().route("/payments", post(|| async { "paid" }));
    let dropped =
        |app: Twice<Router>| message(catch_unwind(AssertUnwindSafe(|| drop(app))).expect_err("no fault"));
    // Without a key.
    let app = twice(routes());
    let plain = Request::post("/payments").body(Body::empty()).unwrap();
    assert_eq!(answer(&app, plain).await.0, StatusCode::OK);
    let expected = "`twice` checked nothing: of 1 requests none had a key, and only those are repeated; send one with the header \
                    `Idempotency-Key` in this test, or leave `twice` out";
    assert_eq!(dropped(app), expected);
    // Without the layer, and without effects that are counted.
    let app = twice(routes());
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::OK);
    let expected = "`twice` checked nothing: what it repeated made no idempotent call and raised no effects; put `#[idempotent]` or \
                    the layer around it, or count what it does with `effects`";
    assert_eq!(dropped(app), expected);
    // With one of the two.
    let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    assert_eq!(answer(&twice(routes().route_layer(layer)), request("/payments")).await.0, StatusCode::OK);
    let shop = Shop::default();
    let once = |State(shop): State<Shop>| async move { shop.charges.store(1, Ordering::SeqCst) };
    let app = shop.watched(Router::new().route("/payments", post(once)));
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_charge_of_a_request_that_failed_before_is_the_first() {
    let shop = Shop::default();
    let pay = |State(shop): State<Shop>| async move {
        let is_up = shop.seen.lock().unwrap().len() > 1;
        if is_up {
            shop.charge().await;
            return StatusCode::CREATED;
        }
        shop.seen.lock().unwrap().insert(format!("{:?}", std::time::Instant::now()));
        StatusCode::SERVICE_UNAVAILABLE
    };
    let app = shop.guarded(Router::new().route("/payments", post(pay))).unbroken();
    assert_eq!(answer(&app, request("/payments")).await.0, StatusCode::CREATED);
    assert_eq!(shop.charges(), 1);
}

#[tokio::test]
async fn another_answer_to_the_same_request_is_found() {
    let number = Arc::new(AtomicU64::new(0));
    let pay = move || async move { format!("receipt {}", number.fetch_add(1, Ordering::SeqCst)) };
    let message = fault(&twice(Router::new().route("/payments", post(pay))), "/payments").await;
    let expected = "POST /payments answered otherwise when the request came again: body `receipt 0` and then `receipt 1`";
    assert_eq!(message, expected);
    let first = Arc::new(AtomicU64::new(0));
    let put = move || async move {
        if first.fetch_add(1, Ordering::SeqCst) == 0 { StatusCode::CREATED } else { StatusCode::CONFLICT }
    };
    let message = fault(&twice(Router::new().route("/cards", post(put))), "/cards").await;
    assert!(message.ends_with("status 201 Created and then 409 Conflict, with the body ``"), "{message}");
}
