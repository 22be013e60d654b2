//! Functions that a framework calls: state and payload by value, destructured.
use std::sync::Arc;

use axum::extract::{Json, Path, State};
use axum::routing::post;
use idem::{MemoryStore, idempotent};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    amount: u32,
}

#[derive(Clone)]
struct App {
    store: Arc<MemoryStore>,
}

struct Failure;

impl From<idem::Error> for Failure {
    fn from(_: idem::Error) -> Self {
        Self
    }
}

impl axum::response::IntoResponse for Failure {
    fn into_response(self) -> axum::response::Response {
        "failed".into_response()
    }
}

#[idempotent(
    key = "{tenant}/{order.id}",
    fingerprint = (tenant, order),
    store = app.store,
    detach
)]
async fn charge(
    State(app): State<App>,
    Path(tenant): Path<String>,
    Json(order): Json<Order>,
) -> Result<String, Failure> {
    drop(app);
    Ok(format!("{tenant}: {}", order.amount))
}

pub(super) fn main() {
    let app = App { store: Arc::new(MemoryStore::new()) };
    let _: axum::Router = axum::Router::new().route("/{tenant}", post(charge)).with_state(app);
}
