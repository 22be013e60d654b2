//! `#[idempotent]` beside the attributes of other crates: the table of `docs/attribute.md`. A function of each pair compiles in
//! both orders, and a test calls it twice.

#![cfg(test)]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Path;
use idem::{Error, MemoryStore, idempotent};
use utoipa::OpenApi as _;

static STORE: LazyLock<MemoryStore> = LazyLock::new(MemoryStore::new);
static BODIES: AtomicU64 = AtomicU64::new(0);

type Receipt = Result<u64, Error>;

/// The number of the body that runs.
fn body() -> Receipt {
    Ok(BODIES.fetch_add(1, Ordering::SeqCst))
}

#[tracing::instrument]
#[idempotent(key = "{id}", scope = "instrument.above", store = STORE)]
async fn instrument_above(id: u64) -> Receipt {
    body()
}

#[idempotent(key = "{id}", scope = "instrument.below", store = STORE)]
#[tracing::instrument]
async fn instrument_below(id: u64) -> Receipt {
    body()
}

#[axum::debug_handler]
#[idempotent(key = "{id}", scope = "debug_handler.above", store = STORE)]
async fn debug_handler_above(Path(id): Path<u64>) -> Result<String, Error> {
    body().map(|number| format!("{id} {number}"))
}

#[idempotent(key = "{id}", scope = "debug_handler.below", store = STORE)]
#[axum::debug_handler]
async fn debug_handler_below(Path(id): Path<u64>) -> Result<String, Error> {
    body().map(|number| format!("{id} {number}"))
}

#[utoipa::path(post, path = "/above/{id}", responses((status = 200)))]
#[idempotent(key = "{id}", scope = "utoipa.above", store = STORE)]
async fn utoipa_above(Path(id): Path<u64>) -> Result<String, Error> {
    body().map(|number| format!("{id} {number}"))
}

#[idempotent(key = "{id}", scope = "utoipa.below", store = STORE)]
#[utoipa::path(post, path = "/below/{id}", responses((status = 200)))]
async fn utoipa_below(Path(id): Path<u64>) -> Result<String, Error> {
    body().map(|number| format!("{id} {number}"))
}

#[async_trait::async_trait]
trait Pay {
    async fn pay(&self, id: u64) -> Receipt;

    #[idempotent(key = "{id}", scope = "async_trait.default", store = STORE)]
    async fn pay_by_default(&self, id: u64) -> Receipt {
        body().map(|number| number * 10 + id)
    }
}

struct Shop;

#[async_trait::async_trait]
impl Pay for Shop {
    #[idempotent(key = "{id}", scope = "async_trait.impl", store = STORE)]
    async fn pay(&self, id: u64) -> Receipt {
        body().map(|number| number * 10 + id)
    }
}

#[tokio::test]
async fn a_function_with_two_attributes_runs_once_in_both_orders() {
    assert_eq!(instrument_above(1).await.unwrap(), instrument_above(1).await.unwrap());
    assert_eq!(instrument_below(1).await.unwrap(), instrument_below(1).await.unwrap());
    assert_eq!(debug_handler_above(Path(1)).await.unwrap(), debug_handler_above(Path(1)).await.unwrap());
    assert_eq!(debug_handler_below(Path(1)).await.unwrap(), debug_handler_below(Path(1)).await.unwrap());
    assert_eq!(utoipa_above(Path(1)).await.unwrap(), utoipa_above(Path(1)).await.unwrap());
    assert_eq!(utoipa_below(Path(1)).await.unwrap(), utoipa_below(Path(1)).await.unwrap());
    assert_eq!(Shop.pay(1).await.unwrap(), Shop.pay(1).await.unwrap());
    assert_eq!(Shop.pay_by_default(1).await.unwrap(), Shop.pay_by_default(1).await.unwrap());
    assert_eq!(BODIES.load(Ordering::SeqCst), 8);
}

#[derive(utoipa::OpenApi)]
#[openapi(paths(utoipa_above, utoipa_below))]
struct Document;

#[test]
fn the_document_has_the_paths_of_both_orders() {
    let document = Document::openapi();
    assert!(document.paths.paths.keys().eq(["/above/{id}", "/below/{id}"]));
}
