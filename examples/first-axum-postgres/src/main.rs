//! `POST /deposits` books money on an account: once for each `Idempotency-Key`, however often the client
//! sends it.

use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use idem::PostgresStore;
use idem::http::{IdempotencyLayer, Tx};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, PgTransaction};

#[derive(Deserialize)]
struct Deposit {
    account: i64,
    cents: i64,
}

#[derive(Serialize)]
struct Receipt {
    balance: i64,
}

/// What the handler writes through `tx` is committed together with its response. If the handler fails,
/// nothing stays.
async fn deposit(
    mut tx: Tx<PgTransaction<'static>>,
    Json(deposit): Json<Deposit>,
) -> Result<Json<Receipt>, StatusCode> {
    let booked = sqlx::query_scalar(
        "INSERT INTO accounts (id, cents) VALUES ($1, $2)
         ON CONFLICT (id) DO UPDATE SET cents = accounts.cents + $2 RETURNING cents",
    )
    .bind(deposit.account)
    .bind(deposit.cents)
    .fetch_one(&mut **tx)
    .await;
    let balance = booked.map_err(|error| {
        tracing::error!(%error, "a deposit failed");
        StatusCode::INTERNAL_SERVER_ERROR
    })?;
    Ok(Json(Receipt { balance }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let pool = PgPool::connect(&std::env::var("DATABASE_URL")?).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS accounts (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)")
        .execute(&pool)
        .await?;
    let store = PostgresStore::from_pool(&pool).await?;
    // If there is more than one client, `.tenant(..)` keeps the clients' keys apart.
    let layer = IdempotencyLayer::in_transaction(store, pool).shared_by_all_clients().build()?;
    let router = Router::new().route("/deposits", post(deposit)).route_layer(layer);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, router).with_graceful_shutdown(idem::terminated()).await?;
    idem::drain(Duration::from_secs(20)).await;
    Ok(())
}
