//! Sends the `tracing` spans of idem and of the program to an OpenTelemetry exporter.

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tracing::Subscriber;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::{EnvFilter, Registry};

/// A subscriber that sends spans to this exporter. Keep the provider: its `shutdown` sends the last spans.
pub fn subscriber(
    exporter: impl SpanExporter + 'static,
) -> (impl Subscriber + Send + Sync, SdkTracerProvider) {
    let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("shop"));
    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    (Registry::default().with(levels).with(layer), provider)
}
