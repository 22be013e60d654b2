//! A payments API behind the `Idempotency-Key` header, on a store and a web framework of your choice.
//!
//! `cargo run -p payments -- --addr 127.0.0.1:3000 --store sqlite:payments.db [--framework actix]`
//!
//! ```sh
//! curl -i localhost:3000/payments -H 'Idempotency-Key: "42"' --json '{"amount": 1999, "currency": "EUR"}'
//! ```
//!
//! The same request again returns the same receipt with `Idempotency-Replayed: true`. Further members of the
//! JSON make a payment behave in special ways, which you can try by hand: `sleep_ms`, `status`, `body_bytes`,
//! `panic`, `stream_ms`, `set_cookie`. `GET /executions` counts how often each route really ran in this
//! process; `GET /metrics` has metrics for Prometheus.

mod on_actix;
mod on_axum;
mod payment;

use std::error::Error;
use std::io;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use http::Method;
use http::request::Parts;
use idem::http::{Guard, IdempotencyLayer};
use idem::{DynStore, OnCrash};
use metrics_exporter_prometheus::PrometheusBuilder;
use rig_stores::{Choice, FORMS};

/// Renders the metrics for Prometheus.
type Metrics = metrics_exporter_prometheus::PrometheusHandle;

/// How long handlers may still run after the server gets the signal to end.
const LAST_ORDERS: Duration = Duration::from_secs(30);

/// A payments API whose requests are safe to send twice.
#[derive(Parser)]
struct Options {
    /// The web framework.
    #[arg(long, value_enum, default_value_t = Framework::Axum)]
    framework: Framework,
    /// The address to listen on; port 0 takes a free port.
    #[arg(long, default_value = "127.0.0.1:3000")]
    addr: String,
    /// The store of responses.
    #[arg(long, default_value = "memory", value_name = FORMS)]
    store: Choice,
    /// The lease: how long the key of a process that died stays claimed.
    #[arg(long, default_value_t = 30_000)]
    lease_ms: u64,
    /// How long a response is kept.
    #[arg(long, default_value_t = 86_400_000)]
    ttl_ms: u64,
    /// How long a duplicate waits for the first request before it is refused.
    #[arg(long, default_value_t = 0)]
    wait_ms: u64,
    /// Run requests without a key unprotected, instead of refusing them.
    #[arg(long)]
    optional_key: bool,
    /// Accept only keys in double quotes.
    #[arg(long, conflicts_with = "optional_key")]
    strict: bool,
    /// The largest body of a request.
    #[arg(long, default_value_t = 2 * 1024 * 1024)]
    max_body: usize,
    /// The largest body of a response that is recorded.
    #[arg(long, default_value_t = 1024 * 1024)]
    max_response: usize,
    /// Run requests unprotected while the store is down, instead of answering 503.
    #[arg(long)]
    fail_open: bool,
    /// If a process dies during a payment, put the payment in doubt for a person to decide, instead of
    /// running it again.
    #[arg(long)]
    in_doubt: bool,
    /// How long the store may take for one request.
    #[arg(long, default_value_t = 10_000)]
    store_timeout_ms: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Framework {
    Axum,
    Actix,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(io::stderr)
        .init();
    let metrics = PrometheusBuilder::new()
        // Without buckets the exporter makes summaries, which cannot be added up over processes.
        .set_buckets(&[0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0])?
        .install_recorder()?;
    let layer = guard(&options, options.store.open().await?)?;
    match options.framework {
        Framework::Axum => on_axum::serve(&options, layer, metrics).await,
        Framework::Actix => on_actix::serve(&options, layer, metrics).await,
    }
}

/// Waits for handlers whose clients went away, and for their responses to be recorded.
async fn drain() {
    let unfinished = idem::drain(LAST_ORDERS).await;
    if !unfinished.is_complete() {
        eprintln!(
            "{} handlers still run, and {} results are not recorded",
            unfinished.bodies, unfinished.results
        );
    }
}

fn guard(options: &Options, store: DynStore) -> Result<IdempotencyLayer<DynStore>, idem::Error> {
    let mut layer = IdempotencyLayer::builder(store)
        .scope("payments-api")
        .tenant(tenant)
        .lease(Duration::from_millis(options.lease_ms))
        .ttl(Duration::from_millis(options.ttl_ms))
        .wait(Duration::from_millis(options.wait_ms))
        .store_timeout(Duration::from_millis(options.store_timeout_ms))
        .max_request_bytes(options.max_body)
        .max_response_bytes(options.max_response)
        .documentation("https://payments.example/docs/idempotency");
    let key = match (options.optional_key, options.strict) {
        (true, _) => Guard::Optional,
        (false, true) => Guard::Quoted,
        (false, false) => Guard::Required,
    };
    layer = layer.guard(move |head| match head.method {
        Method::POST | Method::PATCH => key,
        _ => Guard::Unguarded,
    });
    if options.fail_open {
        layer = layer.fail_open();
    }
    if options.in_doubt {
        layer = layer.on_crash(OnCrash::InDoubt);
    }
    layer.build()
}

/// The tenant. A real API takes it from the authenticated caller.
fn tenant(request: &Parts) -> Option<String> {
    match request.headers.get("x-tenant") {
        Some(tenant) => Some(tenant.to_str().ok()?.to_owned()),
        None => Some("public".to_owned()),
    }
}
