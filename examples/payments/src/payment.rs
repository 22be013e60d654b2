//! What a payment does. This module uses the terms of HTTP and does not depend on a web framework.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// The time between two events of a stream.
const TICK: Duration = Duration::from_millis(50);

/// How often each route ran.
#[derive(Clone, Default)]
pub(crate) struct Executions(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Executions {
    fn counts(&self) -> MutexGuard<'_, BTreeMap<&'static str, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, route: &'static str) {
        *self.counts().entry(route).or_default() += 1;
    }

    pub(crate) fn show(&self) -> Answer {
        let counts = json!({ "executions": *self.counts() }).to_string();
        Answer::new(200, Some("application/json"), counts)
    }

    pub(crate) fn forget(&self) -> Answer {
        self.counts().clear();
        Answer::new(204, None, "")
    }

    /// Answers with the body and the content type of the request.
    pub(crate) fn echo(&self, kind: Option<&str>, body: Bytes) -> Answer {
        self.count("POST /echo");
        Answer::new(200, kind, body)
    }
}

/// The members of a request that make it behave in special ways.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Wishes {
    sleep_ms: u64,
    status: Option<u16>,
    body_bytes: usize,
    panic: bool,
    stream_ms: Option<u64>,
    set_cookie: bool,
}

/// A route, and how it handles a request.
pub(crate) struct Route {
    name: &'static str,
    collection: &'static str,
    status: u16,
    /// The members that the JSON of a request must have.
    required: &'static [&'static str],
}

pub(crate) const PAY: Route =
    Route { name: "POST /payments", collection: "payments", status: 201, required: &["amount", "currency"] };
pub(crate) const CHANGE: Route =
    Route { name: "PATCH /payments/{id}", collection: "payments", status: 200, required: &[] };
pub(crate) const REFUND: Route =
    Route { name: "POST /refunds", collection: "refunds", status: 201, required: &["amount", "currency"] };

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Body,
}

pub(crate) enum Body {
    Whole(Bytes),
    /// A stream of events: the text at once, and then a tick every [`TICK`] for this long.
    Events(String, Duration),
}

impl Answer {
    fn new(status: u16, kind: Option<&str>, body: impl Into<Bytes>) -> Self {
        let headers = kind.map(|kind| ("content-type", kind.to_owned())).into_iter().collect();
        Self { status, headers, body: Body::Whole(body.into()) }
    }
}

/// Makes a payment, a change or a refund as the JSON in `body` says.
pub(crate) async fn carry_out(executions: &Executions, route: &Route, body: &[u8]) -> Answer {
    let order: Value = serde_json::from_slice(body).unwrap_or_default();
    let missing = route.required.iter().find(|member| order.get(member).is_none());
    let wishes = match (missing, Wishes::deserialize(&order)) {
        (None, Ok(wishes)) => wishes,
        (Some(member), _) => return refused(&format!("the member `{member}` is missing")),
        (None, Err(error)) => return refused(&error.to_string()),
    };
    let status = wishes.status.unwrap_or(route.status);
    if !(200..=599).contains(&status) {
        return refused("the status is unknown: give one from 200 to 599");
    }
    executions.count(route.name);
    sleep(Duration::from_millis(wishes.sleep_ms)).await;
    assert!(!wishes.panic, "the request asks for a panic");
    let id = format!("{:032x}", rand::random::<u128>());
    let receipt = receipt(&id, &order, wishes.body_bytes);
    let (kind, body) = match wishes.stream_ms {
        Some(millis) => ("text/event-stream", Body::Events(receipt, Duration::from_millis(millis))),
        None => ("application/json", Body::Whole(receipt.into())),
    };
    let collection = route.collection;
    let mut headers = vec![
        ("content-type", kind.to_owned()),
        ("location", format!("/{collection}/{id}")),
        ("etag", format!("\"{id}\"")),
        ("link", format!("</{collection}/{id}>; rel=\"self\"")),
        ("link", format!("</{collection}>; rel=\"collection\"")),
    ];
    if wishes.set_cookie {
        headers.push(("set-cookie", format!("session={:032x}; HttpOnly", rand::random::<u128>())));
    }
    Answer { status, headers, body }
}

/// A problem (RFC 9457), in the form of the layer's own answers.
fn refused(why: &str) -> Answer {
    let problem = json!({ "type": "about:blank", "title": "Bad Request", "status": 400, "detail": why });
    Answer::new(400, Some("application/problem+json"), problem.to_string())
}

/// A receipt. If `bytes` leaves room for a member `padding` of at least one byte, the receipt has this member
/// and is `bytes` bytes long.
fn receipt(id: &str, order: &Value, bytes: usize) -> String {
    let receipt = |padding: &str| {
        let mut receipt =
            json!({ "id": id, "amount": order.get("amount"), "currency": order.get("currency") });
        if !padding.is_empty() {
            receipt["padding"] = padding.into();
        }
        receipt.to_string()
    };
    let least = receipt("x").len();
    if bytes < least { receipt("") } else { receipt(&"x".repeat(bytes - least + 1)) }
}

/// The events of a stream: the receipt at once, and then a tick every [`TICK`].
pub(crate) fn events(receipt: &str, time: Duration) -> impl Stream<Item = Result<Bytes, Infallible>> + use<> {
    let end = Instant::now() + time;
    stream::unfold(Some(format!("data: {receipt}\n\n")), move |event| async move {
        let event = event?;
        if event.starts_with(':') {
            sleep(TICK.min(end.saturating_duration_since(Instant::now()))).await;
        }
        let next = (Instant::now() < end).then(|| ": tick\n\n".to_owned());
        Some((Ok(Bytes::from(event)), next))
    })
}
