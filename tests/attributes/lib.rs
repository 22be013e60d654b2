//! Tests of `#[idempotent]` beside the attributes of other crates, as in the table of `docs/attribute.md`. If
//! the other attribute is also on the function, there are two functions here, one for each order of the
//! attributes. If it is on the trait or the impl, as `#[async_trait]` is, there is only one order. A test
//! calls each function twice.

#![cfg(test)]
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Path;
use idem::{Error, MemoryStore, idempotent};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::{schemars, tool, tool_router};
use utoipa::OpenApi as _;

static STORE: LazyLock<MemoryStore> = LazyLock::new(MemoryStore::new);
static BODIES: AtomicU64 = AtomicU64::new(0);

type Receipt = Result<u64, Error>;

/// Counts a run of a body, and returns its number.
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

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Request {
    id: u64,
}

/// An error that a tool may return.
#[derive(Debug)]
struct Refusal;

impl From<Error> for Refusal {
    fn from(_: Error) -> Self {
        Self
    }
}

impl rmcp::model::IntoContents for Refusal {
    fn into_contents(self) -> Vec<rmcp::model::ContentBlock> {
        Vec::new()
    }
}

#[tool_router(server_handler)]
impl Shop {
    #[tool]
    #[idempotent(key = "{request.id}", scope = "tool.above", store = STORE)]
    async fn tool_above(&self, Parameters(request): Parameters<Request>) -> Result<String, Refusal> {
        Ok(format!("{} {}", request.id, body()?))
    }

    #[idempotent(key = "{request.id}", scope = "tool.below", store = STORE)]
    #[tool]
    async fn tool_below(&self, Parameters(request): Parameters<Request>) -> Result<String, Refusal> {
        Ok(format!("{} {}", request.id, body()?))
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
    let request = || Parameters(Request { id: 1 });
    assert_eq!(Shop.tool_above(request()).await.unwrap(), Shop.tool_above(request()).await.unwrap());
    assert_eq!(Shop.tool_below(request()).await.unwrap(), Shop.tool_below(request()).await.unwrap());
    assert_eq!(Shop.pay(1).await.unwrap(), Shop.pay(1).await.unwrap());
    assert_eq!(Shop.pay_by_default(1).await.unwrap(), Shop.pay_by_default(1).await.unwrap());
    assert_eq!(BODIES.load(Ordering::SeqCst), 10);
}

#[test]
fn the_router_has_the_tools_of_both_orders() {
    let tools = Shop::tool_router().list_all();
    assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["tool_above", "tool_below"]);
}

#[derive(utoipa::OpenApi)]
#[openapi(paths(utoipa_above, utoipa_below))]
struct Document;

#[test]
fn the_document_has_the_paths_of_both_orders() {
    let document = Document::openapi();
    assert!(document.paths.paths.keys().eq(["/above/{id}", "/below/{id}"]));
}
