//! Two calls of one key, and their spans on standard output: `cargo run -p example-opentelemetry`.

use std::error::Error;

use example_opentelemetry::subscriber;
use idem::{MemoryStore, idempotent};

#[idempotent(key = "order/{order}", store = store, scope = "shop.charge")]
async fn charge(store: &MemoryStore, order: u64) -> Result<String, idem::Error> {
    tracing::info!("asking the gateway");
    Ok(format!("receipt for {order}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In a service: `opentelemetry_otlp::SpanExporter`.
    let (subscriber, provider) = subscriber(opentelemetry_stdout::SpanExporter::default());
    tracing::subscriber::set_global_default(subscriber)?;
    let store = MemoryStore::new();
    for _ in 0..2 {
        println!("{}", charge(&store, 42).await?);
    }
    provider.shutdown()?;
    Ok(())
}
