//! The spans that an exporter gets for two calls with one key.

use std::collections::BTreeMap;

use example_opentelemetry::subscriber;
use idem::{MemoryStore, Operation};
use opentelemetry_sdk::trace::InMemorySpanExporter;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_and_its_replay_are_spans_with_attributes_of_idem_and_without_the_key() {
    let exporter = InMemorySpanExporter::default();
    let (subscriber, provider) = subscriber(exporter.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let store = MemoryStore::new();
    for _ in 0..2 {
        let body = || async {
            tracing::info_span!("gateway").in_scope(|| ());
            Ok::<_, idem::Error>(7)
        };
        assert_eq!(Operation::new("shop.charge").run(&store, "private-key", body).await.unwrap(), 7);
    }
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    let calls: Vec<_> = spans.iter().filter(|span| span.name == "idempotent_call").collect();
    assert_eq!(calls.len(), 2, "{spans:?}");
    for (call, outcome) in calls.iter().zip(["completed", "replayed"]) {
        let attributes: BTreeMap<&str, String> =
            call.attributes.iter().map(|pair| (pair.key.as_str(), pair.value.to_string())).collect();
        assert_eq!(attributes["idem.operation"], "shop.charge");
        assert_eq!(attributes["idem.outcome"], outcome);
        assert_eq!(attributes["idem.key.digest"].len(), 16);
        assert!(!format!("{call:?}").contains("private-key"));
    }
    assert_eq!(calls[0].attributes.iter().filter(|pair| pair.key.as_str() == "idem.attempt").count(), 1);
    // Spans of the body are children of the call that ran it.
    let gateway: Vec<_> = spans.iter().filter(|span| span.name == "gateway").collect();
    assert_eq!(gateway.len(), 1);
    assert_eq!(gateway[0].parent_span_id, calls[0].span_context.span_id());
    assert_eq!(gateway[0].span_context.trace_id(), calls[0].span_context.trace_id());
}
