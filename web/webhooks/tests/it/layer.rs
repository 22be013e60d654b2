//! Tests what the sender and the handler see.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use idem::MemoryStore;
use idem::testing::{Fault, FaultStore, OperationKind};
use idem_http::Body;
use idem_webhooks::{Delivery, Sender, WebhookLayer};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _, service_fn};

use crate::support::{SECRET, github, now, slack, stripe};

/// A handler behind the layer.
struct Hook {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    runs: Arc<AtomicUsize>,
    status: Arc<AtomicU16>,
}

impl Hook {
    fn new(sender: Sender) -> Self {
        Self::padded(sender, 0)
    }

    /// A handler whose answers have at least `length` bytes. If `length` is not 0, a delivery may have up to
    /// twice as many bytes.
    fn padded(sender: Sender, length: usize) -> Self {
        let layer = WebhookLayer::with(sender, MemoryStore::new(), |settings| match length {
            0 => settings,
            _ => settings.max_request_bytes(2 * length),
        });
        let (runs, status) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU16::new(200)));
        let (counted, answer) = (runs.clone(), status.clone());
        let handler = service_fn(move |request: Request<Body>| {
            let delivery = request.extensions().get::<Delivery>().expect("the layer sets it");
            let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let text = format!("{} {} {run}", delivery.sender(), delivery.id().unwrap_or("-"));
            let padding = " ".repeat(length.saturating_sub(text.len()));
            let mut response = Response::new(Body::from(bytes::Bytes::from(text + &padding)));
            *response.status_mut() = StatusCode::from_u16(answer.load(Ordering::SeqCst)).unwrap();
            ready(Ok::<_, Infallible>(response))
        });
        let service = BoxCloneSyncService::new(ServiceBuilder::new().layer(layer.unwrap()).service(handler));
        Self { service, runs, status }
    }

    async fn send(&self, request: Request<Body>) -> (u16, String) {
        let response = self.service.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

const EVENT: &str = r#"{"id":"evt_1","type":"payment_intent.succeeded"}"#;

fn of_stripe() -> Hook {
    Hook::new(Sender::stripe([SECRET]).unwrap())
}

#[tokio::test]
async fn a_repeated_delivery_gets_the_first_answer_and_is_handled_once() {
    let hook = of_stripe();
    let first = hook.send(stripe(SECRET, now(), EVENT)).await;
    assert_eq!(first, (200, "stripe evt_1 1".to_owned()));
    // Each repetition has a new signature, and may go to another path.
    let mut again = stripe(SECRET, now() - 3, EVENT);
    *again.uri_mut() = "/other?retry=2".parse().unwrap();
    assert_eq!(hook.send(again).await, first);
    let other = hook.send(stripe(SECRET, now(), r#"{"id":"evt_2"}"#)).await;
    assert_eq!((other.1, hook.runs()), ("stripe evt_2 2".to_owned(), 2));
}

#[tokio::test]
async fn an_answer_other_than_2xx_is_not_kept_so_that_the_repetition_is_handled() {
    let hook = of_stripe();
    for status in [500, 503, 422, 404, 302] {
        hook.status.store(status, Ordering::SeqCst);
        assert_eq!(hook.send(stripe(SECRET, now(), EVENT)).await.0, status);
    }
    hook.status.store(204, Ordering::SeqCst);
    assert_eq!(hook.send(stripe(SECRET, now(), EVENT)).await.0, 204);
    assert_eq!((hook.send(stripe(SECRET, now(), EVENT)).await.0, hook.runs()), (204, 6));
}

#[tokio::test]
async fn a_delivery_that_is_being_handled_is_not_acknowledged_and_none_is_while_the_store_is_down() {
    let store = FaultStore::new(MemoryStore::new());
    let layer = WebhookLayer::with(Sender::stripe([SECRET]).unwrap(), store.clone(), |settings| {
        settings.wait(Duration::from_millis(20)).store_timeout(Duration::from_millis(300))
    });
    let handler = service_fn(|_: Request<Body>| pending::<Result<Response<Body>, Infallible>>());
    let service = ServiceBuilder::new().layer(layer.unwrap()).service(handler);
    let deliver = || service.clone().oneshot(stripe(SECRET, now(), EVENT));
    store.always(OperationKind::Claim, Fault::FailBefore);
    assert_eq!(deliver().await.unwrap().status(), 503);
    store.always(OperationKind::Claim, None);
    // The handler does not end, so only a second delivery is answered.
    let second = tokio::select! { answer = deliver() => answer, answer = deliver() => answer };
    assert_eq!(second.unwrap().status(), 409);
}

#[tokio::test]
async fn what_the_sender_did_not_sign_reaches_no_handler() {
    let hook = of_stripe();
    let unsigned = Request::post("/hook").body(Body::from(bytes::Bytes::from(EVENT))).unwrap();
    assert_eq!(hook.send(unsigned).await.0, 401);
    assert_eq!(hook.send(stripe("another secret", now(), EVENT)).await.0, 401);
    let mut changed = stripe(SECRET, now(), EVENT);
    *changed.body_mut() = Body::from(bytes::Bytes::from(EVENT.replace("evt_1", "evt_9")));
    assert_eq!(hook.send(changed).await.0, 401);
    assert_eq!(hook.send(stripe(SECRET, now() - 301, EVENT)).await.0, 401);
    assert_eq!(hook.send(stripe(SECRET, now() + 310, EVENT)).await.0, 401);
    // These deliveries have the time `u64::MAX`, so even the right secret does not make them valid.
    for secret in ["another secret", SECRET] {
        assert_eq!(hook.send(stripe(secret, u64::MAX, EVENT)).await.0, 401);
    }
    assert_eq!(hook.send(stripe(SECRET, now(), "no JSON")).await.0, 400);
    assert_eq!(hook.send(stripe(SECRET, now(), &format!("{EVENT}{}", " ".repeat(2_097_200)))).await.0, 413);
    assert_eq!(hook.runs(), 0);
}

#[tokio::test]
async fn an_old_and_a_new_secret_are_valid_while_they_change() {
    let hook = Hook::new(Sender::stripe(["the new secret", SECRET]).unwrap());
    assert_eq!(hook.send(stripe(SECRET, now(), EVENT)).await.0, 200);
    assert_eq!(hook.send(stripe("the new secret", now(), EVENT)).await.1, "stripe evt_1 1");
}

#[tokio::test]
async fn a_client_cannot_set_the_key_itself() {
    let hook = Hook::new(Sender::slack([SECRET]).unwrap());
    let mut request = slack(r#"{"type":"url_verification"}"#);
    request.headers_mut().insert("idempotency-key", "chosen".parse().unwrap());
    assert_eq!(hook.send(request).await.1, "slack - 1");
    assert_eq!(hook.send(slack(r#"{"type":"url_verification"}"#)).await.1, "slack - 2");
    assert_eq!(hook.send(slack(r#"{"event_id":"Ev1","id":7}"#)).await.1, "slack Ev1 3");
    assert_eq!(hook.send(slack(r#"{"event_id":"Ev1","id":7}"#)).await.1, "slack Ev1 3");
}

#[tokio::test]
async fn an_event_has_its_id_whatever_else_is_in_it() {
    let hook = Hook::new(Sender::slack([SECRET]).unwrap());
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (number, other) in [(1, r#""\ud83d""#), (2, "1e999"), (3, &*deep)] {
        let event = format!(r#"{{"text":{other},"event_id":"Ev{number}"}}"#);
        for _ in 0..2 {
            assert_eq!(hook.send(slack(&event)).await.1, format!("slack Ev{number} {number}"));
        }
    }
}

#[tokio::test]
async fn ids_with_quotes_are_keys_of_their_own() {
    let hook = Hook::new(Sender::github([SECRET]).unwrap());
    assert_eq!(hook.send(github("a", "{}")).await.1, "github a 1");
    assert_eq!(hook.send(github("\"a\"", "{}")).await.1, "github \"a\" 2");
    assert_eq!(hook.send(github("a\\", "{}")).await.1, "github a\\ 3");
    assert_eq!(hook.send(github("a", "{}")).await.1, "github a 1");
    assert_eq!(hook.send(github(&"x".repeat(300), "{}")).await.0, 400);
}

#[test]
fn no_secret_is_shown_and_none_may_be_missing() {
    let sender = Sender::stripe([SECRET]).unwrap();
    assert!(!format!("{sender:?}").contains("dashboard"));
    assert!(Sender::stripe(Vec::<String>::new()).is_err());
    assert!(Sender::github([""]).is_err());
    assert!(Sender::standard(["whsec_%"]).is_err());
}

#[tokio::test]
async fn a_delivery_whose_answer_is_too_large_to_keep_is_handled_once_and_answered_with_2xx_again() {
    let hook = Hook::padded(Sender::stripe([SECRET]).unwrap(), 2 << 20);
    // This event is larger than the default limit of a delivery.
    let event = format!("{EVENT}{}", " ".repeat(3 << 20));
    for length in [2 << 20, 0] {
        let (status, text) = hook.send(stripe(SECRET, now(), &event)).await;
        assert_eq!((status, text.len()), (200, length));
    }
    assert_eq!(hook.runs(), 1);
}
