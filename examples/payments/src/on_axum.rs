//! The API on axum.

use std::error::Error;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use axum::{Json, Router};
use idem::DynStore;
use idem::http::IdempotencyLayer;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;

use crate::payment::{Bank, Order};

/// Serves until the process gets the signal to end.
pub(crate) async fn serve(
    addr: &str,
    layer: IdempotencyLayer<DynStore>,
    metrics: PrometheusHandle,
) -> Result<(), Box<dyn Error>> {
    let app = Router::new()
        .route("/payments", post(pay))
        .route_layer(layer)
        .route("/executions", get(async |State(bank): State<Bank>| Json(bank.executions())))
        .route("/metrics", get(async move || metrics.render()))
        .with_state(Bank::default());
    let listener = TcpListener::bind(addr).await?;
    // A reader of the next line may send the signal to end at once, so its handler is installed before.
    let terminated = idem::terminated();
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(terminated).await?;
    crate::drain().await;
    Ok(())
}

async fn pay(State(bank): State<Bank>, Json(order): Json<Order>) -> impl IntoResponse {
    let receipt = bank.pay(order).await;
    (StatusCode::CREATED, [(LOCATION, receipt.location())], Json(receipt))
}
