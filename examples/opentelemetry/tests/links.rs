//! A replay is linked to the span of the first run, in any store.

use example_opentelemetry::{Links, subscriber};
use idem::{KeyRing, MemoryStore, Operation, SqliteStore, Store, StoreExt as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::Instrument as _;

async fn charge<S: Store>(store: &S) {
    let body = || async { Ok::<_, idem::Error>(7) };
    let operation = Operation::new("shop.charge");
    let call = operation.run(store, "private-key", body);
    // Each call is in a trace of its own.
    assert_eq!(call.instrument(tracing::info_span!("request")).await.unwrap(), 7);
}

fn calls(provider: &SdkTracerProvider, exporter: &InMemorySpanExporter) -> Vec<SpanData> {
    provider.force_flush().unwrap();
    let spans = exporter.get_finished_spans().unwrap();
    spans.into_iter().filter(|span| span.name == "idempotent_call").collect()
}

async fn linked<S: Store>(store: S) {
    let exporter = InMemorySpanExporter::default();
    let (subscriber, provider) = subscriber(exporter.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    for _ in 0..3 {
        charge(&store).await;
    }
    let calls = calls(&provider, &exporter);
    let [first, replays @ ..] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!((first.links.len(), replays.len()), (0, 2));
    for replay in replays {
        let [link] = &replay.links[..] else { panic!("{replay:?}") };
        assert_eq!(link.span_context.span_id(), first.span_context.span_id());
        assert_eq!(link.span_context.trace_id(), first.span_context.trace_id());
        assert_ne!(replay.span_context.trace_id(), first.span_context.trace_id());
    }
    assert!(!format!("{calls:?}").contains("private-key"));
}

#[tokio::test]
async fn a_replay_is_linked_to_the_first_run() {
    linked(MemoryStore::new().traced(Links)).await;
    let folder = tempfile::tempdir().unwrap();
    linked(SqliteStore::open(folder.path().join("idem.db")).unwrap().traced(Links)).await;
}

#[tokio::test]
async fn a_replay_is_linked_where_results_are_encrypted_and_compressed_too() {
    linked(MemoryStore::new().encrypted(KeyRing::new(1, &[7; 32])).compressed().traced(Links)).await;
}

#[tokio::test]
async fn who_did_not_ask_keeps_nothing_and_reads_what_was_kept_by_who_did_not() {
    let exporter = InMemorySpanExporter::default();
    let (subscriber, provider) = subscriber(exporter.clone());
    let _guard = tracing::subscriber::set_default(subscriber);
    let store = MemoryStore::new();
    charge(&store).await;
    charge(&store).await;
    // The layer was added later: a result from before has no span to link to.
    charge(&store.clone().traced(Links)).await;
    assert!(calls(&provider, &exporter).iter().all(|call| call.links.iter().next().is_none()));
    // The layer without links still reads results that were recorded with a span.
    let store = MemoryStore::new();
    charge(&store.clone().traced(Links)).await;
    charge(&store.traced(())).await;
}
