//! Makes two calls with one key, and prints their spans: `cargo run -p example-opentelemetry`.

use std::error::Error;

use example_opentelemetry::subscriber;
use idem::{MemoryStore, Store, idempotent};

#[idempotent(key = "order/{order}", store = store, scope = "shop.charge")]
async fn charge<S: Store>(store: &S, order: u64) -> Result<String, idem::Error> {
    tracing::info!("asking the gateway");
    Ok(format!("receipt for {order}"))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // A service would use `opentelemetry_otlp::SpanExporter`.
    let (subscriber, provider) = subscriber(opentelemetry_stdout::SpanExporter::default());
    tracing::subscriber::set_global_default(subscriber)?;
    let store = MemoryStore::new();
    for _ in 0..2 {
        println!("{}", charge(&store, 42).await?);
    }
    provider.shutdown()?;
    Ok(())
}
