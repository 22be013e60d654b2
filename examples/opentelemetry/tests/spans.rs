//! The spans of a call and its replay, and those of the HTTP layer and of a consumer by OpenTelemetry's conventions.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use example_opentelemetry::subscriber;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use idem::http::IdempotencyLayer;
use idem::message::{Consumer, DeadLetter, Delivery};
use idem::{MemoryStore, Operation};
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SpanData};
use tower::{Layer as _, ServiceExt as _, service_fn};

fn attributes(span: &SpanData) -> BTreeMap<&str, String> {
    span.attributes.iter().map(|pair| (pair.key.as_str(), pair.value.to_string())).collect()
}

/// The spans that an exporter gets of this work.
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
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "idempotent_call").collect();
    assert_eq!(calls.len(), 2, "{spans:?}");
    for (call, outcome) in calls.iter().zip(["completed", "replayed"]) {
        let attributes = attributes(call);
        assert_eq!((&*attributes["idem.operation"], &*attributes["idem.outcome"]), ("shop.charge", outcome));
        assert_eq!(attributes["idem.key.digest"].len(), 16);
    }
    assert_eq!(calls[0].attributes.iter().filter(|pair| pair.key.as_str() == "idem.attempt").count(), 1);
    // Spans of the body are children of the call that ran it.
    let gateway: Vec<_> = spans.iter().filter(|span| span.name == "gateway").collect();
    assert_eq!(gateway.len(), 1);
    assert_eq!(gateway[0].parent_span_id, calls[0].span_context.span_id());
    assert_eq!(gateway[0].span_context.trace_id(), calls[0].span_context.trace_id());
}

#[tokio::test]
async fn a_guarded_request_has_a_span_with_method_status_and_outcome() {
    let layer = IdempotencyLayer::shared_by_all_clients(MemoryStore::new());
    let service = layer.layer(service_fn(|_: Request<idem::http::Body>| async {
        let mut response = Response::new(Full::new(Bytes::from_static(b"paid")));
        *response.status_mut() = StatusCode::CREATED;
        Ok::<_, Infallible>(response)
    }));
    let spans = spans_of(async {
        for (key, status) in [("private-key", 201), ("private-key", 201), ("", 400)] {
            let request = Request::post("/payments/private").header("idempotency-key", key);
            let request = request.body(Full::new(Bytes::new())).unwrap();
            assert_eq!(service.clone().oneshot(request).await.unwrap().status(), status);
        }
    })
    .await;
    let requests: Vec<_> = spans.iter().filter(|span| span.name == "idempotent_request").collect();
    let seen: Vec<_> = requests
        .iter()
        .map(|span| {
            let attributes = attributes(span);
            assert_eq!(attributes["http.request.method"], "POST");
            (attributes["http.response.status_code"].clone(), attributes["idem.http.outcome"].clone())
        })
        .collect();
    let text = |status: &str, outcome: &str| (status.to_owned(), outcome.to_owned());
    assert_eq!(seen, [text("201", "handled"), text("201", "replayed"), text("400", "key-malformed")]);
    // The call's span is a child of its request's.
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "idempotent_call").collect();
    for (call, request) in calls.iter().zip(&requests) {
        assert_eq!(call.parent_span_id, request.span_context.span_id());
    }
    assert_eq!(calls.len(), 2);
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
    let handled: Vec<_> = spans.iter().filter(|span| span.name == "process orders").collect();
    assert_eq!(handled.len(), 2, "{spans:?}");
    for span in &handled {
        assert_eq!(span.span_kind, SpanKind::Consumer);
        let attributes = attributes(span);
        for (name, value) in [
            ("messaging.system", "nats"),
            ("messaging.destination.name", "orders"),
            ("messaging.operation.name", "process"),
            ("messaging.operation.type", "process"),
            ("messaging.message.id", "orders#17"),
            ("idem.message.disposition", "acknowledge"),
        ] {
            assert_eq!(attributes[name], value, "{name}");
        }
        assert!(spans.iter().any(|call| call.parent_span_id == span.span_context.span_id()));
    }
}
