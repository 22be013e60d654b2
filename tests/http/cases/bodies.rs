//! Tests of bodies in the HTTP layer, over real sockets. Here are their servers: one that echoes, and one that ends when
//! the test says so.

mod handlers;
mod requests;
mod responses;

use crate::framework::{Server, serve};
use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use idem::MemoryStore;
use idem::http::{Builder, IdempotencyLayer, Running};
use support::Runs;
use tokio::sync::Semaphore;

/// The largest body of a request or of a kept response in these tests.
pub(crate) const LIMIT: usize = 1_000;

pub(crate) fn layer(
    options: impl FnOnce(Builder<MemoryStore>) -> Builder<MemoryStore>,
) -> IdempotencyLayer<MemoryStore> {
    let builder = IdempotencyLayer::builder(MemoryStore::new()).shared_by_all_clients();
    options(builder.max_request_bytes(LIMIT).max_response_bytes(LIMIT)).build().unwrap()
}

/// A server that echoes bodies and counts its runs.
pub(crate) async fn echo() -> (Server, Runs) {
    let runs = Runs::default();
    let count = runs.clone();
    let echo = move |body: Bytes| async move {
        count.run();
        body
    };
    let router = Router::new().route("/echo", post(echo)).layer(DefaultBodyLimit::disable());
    (serve(router, layer(|builder| builder)).await, runs)
}

/// A server whose handler begins, waits and ends when the test says so.
pub(crate) struct Slow {
    pub(crate) server: Server,
    pub(crate) running: Running,
    begun: Arc<Semaphore>,
    pub(crate) may_end: Arc<Semaphore>,
    pub(crate) ended: Arc<AtomicUsize>,
}

impl Slow {
    pub(crate) async fn start() -> Self {
        let layer = layer(|builder| builder);
        let running = layer.running();
        let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let ended = Arc::new(AtomicUsize::new(0));
        let (seen, gate, count) = (begun.clone(), may_end.clone(), ended.clone());
        let handler = move || async move {
            seen.add_permits(1);
            gate.acquire().await.unwrap().forget();
            format!("receipt {}", count.fetch_add(1, Ordering::SeqCst) + 1)
        };
        let server = serve(Router::new().route("/pay", post(handler)), layer).await;
        Self { server, running, begun, may_end, ended }
    }

    pub(crate) async fn until_begun(&self) {
        self.begun.acquire().await.unwrap().forget();
    }
}
