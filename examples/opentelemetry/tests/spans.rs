//! Tests the spans of a call and of its replay, and the spans of the HTTP layer and of a consumer. The spans
//! of the layer and the consumer must follow OpenTelemetry's conventions.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use example_opentelemetry::subscriber;
use futures_util::stream;
use http::{Request, Response};
use http_body_util::Full;
use idem::http::IdempotencyLayer;
use idem::message::{Consumer, DeadLetter, Delivery};
use idem::{MemoryStore, Operation};
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use tower::{Layer as _, ServiceExt as _, service_fn};

fn named<'s>(spans: &'s [SpanData], name: &str) -> Vec<&'s SpanData> {
    spans.iter().filter(|span| span.name == name).collect()
}

/// The values of these attributes, separated by spaces.
fn values(span: &SpanData, names: &[&str]) -> String {
    let value = |name: &&str| {
        let pair = span.attributes.iter().find(|pair| pair.key.as_str() == *name);
        pair.map(|pair| pair.value.to_string()).unwrap_or_default()
    };
    names.iter().map(value).collect::<Vec<_>>().join(" ")
}

/// Does this work, and returns the spans that the exporter gets.
async fn spans_of(work: impl Future<Output = ()>) -> Vec<SpanData> {
    let exporter = InMemorySpanExporter::default();
    let (subscriber, provider) = subscriber(exporter.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    work.await;
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    assert!(!format!("{spans:?}").contains("private"), "{spans:?}");
    spans
}

#[tokio::test]
async fn a_call_and_its_replay_are_spans_with_attributes_of_idem_and_without_the_key() {
    let spans = spans_of(async {
        let store = MemoryStore::new();
        for _ in 0..2 {
            let body = || async {
                tracing::info_span!("gateway").in_scope(|| ());
                Ok::<_, idem::Error>(7)
            };
            assert_eq!(Operation::new("shop.charge").run(&store, "private-key", body).await.unwrap(), 7);
        }
    })
    .await;
    let calls = named(&spans, "idempotent_call");
    let outcomes: Vec<_> =
        calls.iter().map(|call| values(call, &["idem.operation", "idem.outcome"])).collect();
    assert_eq!(outcomes, ["shop.charge completed", "shop.charge replayed"]);
    assert!(calls.iter().all(|call| values(call, &["idem.key.digest"]).len() == 16), "{calls:?}");
    assert_eq!(calls[0].attributes.iter().filter(|pair| pair.key.as_str() == "idem.attempt").count(), 1);
    // Spans of the body are children of the call that ran it.
    let [gateway] = named(&spans, "gateway")[..] else { panic!("{spans:?}") };
    assert_eq!(gateway.parent_span_id, calls[0].span_context.span_id());
    assert_eq!(gateway.span_context.trace_id(), calls[0].span_context.trace_id());
}

#[tokio::test]
async fn a_guarded_request_has_a_span_with_method_status_and_outcome() {
    let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    let service = layer.layer(service_fn(|_: Request<idem::http::Body>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"paid"))))
    }));
    let spans = spans_of(async {
        for (key, status) in [("private-key", 200), ("private-key", 200), ("", 400)] {
            let request = Request::post("/payments/private").header("idempotency-key", key);
            let request = request.body(Full::new(Bytes::new())).unwrap();
            assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
        }
    })
    .await;
    let requests = named(&spans, "idempotent_request");
    let names = ["http.request.method", "http.response.status_code", "idem.http.outcome"];
    let outcomes: Vec<_> = requests.iter().map(|request| values(request, &names)).collect();
    assert_eq!(outcomes, ["POST 200 handled", "POST 200 replayed", "POST 400 key-malformed"]);
    // The span of a call is a child of the span of its request.
    let parents: Vec<_> = named(&spans, "idempotent_call").iter().map(|call| call.parent_span_id).collect();
    assert_eq!(parents, [requests[0].span_context.span_id(), requests[1].span_context.span_id()]);
}

struct Message;

impl Delivery for Message {
    type Error = Infallible;

    const SYSTEM: Option<&'static str> = Some("nats");

    async fn acknowledge(&self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn retry(&self, _after: Duration) -> Result<(), Infallible> {
        Ok(())
    }

    async fn reject(&self, _letter: &DeadLetter) -> Result<(), Infallible> {
        Ok(())
    }

    async fn give_back(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn id(&self) -> Option<String> {
        Some("orders#17".to_owned())
    }

    fn destination(&self) -> Option<String> {
        Some("orders".to_owned())
    }
}

#[tokio::test]
async fn a_handler_has_a_span_with_system_destination_and_what_became_of_the_message() {
    let store = MemoryStore::new();
    let handler = |_: &Message| {
        let store = store.clone();
        async move {
            let operation = Operation::new("shop.ship");
            operation.run(&store, "private-key", || async { Ok::<_, idem::Error>(7) }).await
        }
    };
    let messages = stream::iter([Ok::<_, Infallible>(Message), Ok(Message)]);
    let spans = spans_of(async {
        Consumer::new().concurrency(1).run(messages, handler).await;
    })
    .await;
    let handled = named(&spans, "process orders");
    assert_eq!(handled.len(), 2, "{spans:?}");
    for span in handled {
        let names = ["system", "destination.name", "operation.name", "operation.type", "message.id"]
            .map(|name| format!("messaging.{name}"));
        let names = names.each_ref().map(String::as_str);
        assert_eq!(values(span, &names), "nats orders process process orders#17");
        assert_eq!(values(span, &["idem.message.disposition"]), "acknowledge");
        assert_eq!(span.span_kind, SpanKind::Consumer);
        assert!(spans.iter().any(|call| call.parent_span_id == span.span_context.span_id()));
    }
}
