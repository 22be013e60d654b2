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
use tokio::net::TcpListener;

use crate::payment::{Executions, Payment};
use crate::{Metrics, Options, drain};

/// Serves until the process gets the signal to end.
pub(crate) async fn serve(
    options: &Options,
    layer: IdempotencyLayer<DynStore>,
    metrics: Metrics,
) -> Result<(), Box<dyn Error>> {
    let api = Router::new()
        .route("/payments", post(pay))
        .route_layer(layer)
        .route("/executions", get(async |State(executions): State<Executions>| executions.count()))
        .route("/metrics", get(async move || metrics.render()))
        .with_state(Executions::default());
    let listener = TcpListener::bind(&options.addr).await?;
    // A reader of the next line may send the signal to end at once, so its handler is installed before.
    let terminated = idem::terminated();
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, api).with_graceful_shutdown(terminated).await?;
    // The connections are closed, but a handler whose client went away may still run, or its response may not be recorded yet.
    drain().await;
    Ok(())
}

async fn pay(State(executions): State<Executions>, Json(payment): Json<Payment>) -> impl IntoResponse {
    let receipt = executions.pay(payment).await;
    (StatusCode::CREATED, [(LOCATION, receipt.location())], Json(receipt))
}
