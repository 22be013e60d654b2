//! `POST /deposits` books money on an account: once for each deposit, however often the client sends it.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idem::{PostgresStore, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, Transaction};

#[derive(Clone)]
struct App {
    pool: PgPool,
    store: PostgresStore,
}

#[derive(Deserialize)]
struct Deposit {
    id: String,
    account: i64,
    cents: i64,
}

#[derive(Serialize, Deserialize)]
struct Receipt {
    balance: i64,
}

#[derive(Debug, thiserror::Error)]
enum DepositError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

/// The caller's transaction commits the claim, the booking and the result together.
#[idempotent(
    key = "deposit/{deposit.id}",
    scope = "bank.deposit",
    fingerprint = (deposit.account, deposit.cents),
    store = app.store,
    transaction = tx
)]
async fn book(
    app: &App,
    tx: &mut Transaction<'_, Postgres>,
    deposit: &Deposit,
) -> Result<Receipt, DepositError> {
    let (balance,) = sqlx::query_as(
        "INSERT INTO accounts (id, cents) VALUES ($1, $2)
         ON CONFLICT (id) DO UPDATE SET cents = accounts.cents + $2 RETURNING cents",
    )
    .bind(deposit.account)
    .bind(deposit.cents)
    .fetch_one(&mut **tx)
    .await?;
    Ok(Receipt { balance })
}

async fn deposit(
    State(app): State<App>,
    Json(deposit): Json<Deposit>,
) -> Result<Json<Receipt>, DepositError> {
    let mut tx = app.pool.begin().await?;
    let receipt = book(&app, &mut tx, &deposit).await?;
    tx.commit().await?;
    Ok(Json(receipt))
}

impl IntoResponse for DepositError {
    fn into_response(self) -> Response {
        match self {
            // 422 for a different deposit with this id, 409 for one in progress, 503 if the store is down.
            Self::Idem(error) => error.into_response(),
            Self::Database(error) => {
                tracing::error!(%error, "a deposit failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt::init();
    let url = std::env::var("DATABASE_URL")?;
    let pool = PgPool::connect(&url).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS accounts (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)")
        .execute(&pool)
        .await?;
    let app = App { pool, store: PostgresStore::connect(&url).await? };
    let router = Router::new().route("/deposits", post(deposit)).with_state(app);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, router).with_graceful_shutdown(idem::terminated()).await?;
    idem::drain(Duration::from_secs(20)).await;
    Ok(())
}
