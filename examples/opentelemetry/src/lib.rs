//! Sends the `tracing` spans of idem and of the program to an OpenTelemetry exporter.

use idem::{TraceContext, TraceLinks};
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState, TracerProvider as _,
};
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanExporter};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
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

/// Links replays to the first run: `store.traced(Links)`.
#[derive(Clone, Copy)]
pub struct Links;

impl TraceLinks for Links {
    fn current(&self) -> Option<TraceContext> {
        let context = Span::current().context();
        let first = context.span().span_context().clone();
        let (trace, span) = (first.trace_id().to_bytes(), first.span_id().to_bytes());
        first.is_valid().then(|| TraceContext::new(trace, span, first.trace_flags().to_u8()))
    }

    fn link(&self, first: TraceContext) {
        let (trace, span) = (TraceId::from_bytes(first.trace_id), SpanId::from_bytes(first.span_id));
        let flags = TraceFlags::new(first.flags);
        Span::current().add_link(SpanContext::new(trace, span, flags, true, TraceState::default()));
    }
}
