//! `POST /orders/{order}/charge` charges an order: once, however often the client asks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idem::{DynStore, SqliteStore, idempotent};
use serde::{Deserialize, Serialize};

/// Stands for the card company: it makes one charge for each key, however often it gets the request.
#[derive(Default)]
struct Gateway {
    charges: Mutex<HashMap<String, u64>>,
}

impl Gateway {
    async fn charge(&self, key: String, cents: u64) {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner).insert(key, cents);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[derive(Clone)]
struct App {
    store: DynStore,
    gateway: Arc<Gateway>,
}

#[derive(Debug, Deserialize)]
struct Charge {
    cents: u64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Receipt {
    order: String,
    cents: u64,
    attempt: u32,
}

#[derive(Debug, thiserror::Error)]
enum ChargeError {
    #[error("the charge runs outside of a call")]
    NoCall,
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

#[idempotent(
    key = "order/{order}",
    scope = "shop.charge",
    fingerprint = cents,
    ttl = "7d",
    wait = "5s",
    store = app.store
)]
async fn charge(app: &App, order: &str, cents: u64) -> Result<Receipt, ChargeError> {
    let call = idem::context().ok_or(ChargeError::NoCall)?;
    app.gateway.charge(call.downstream_key("gateway"), cents).await;
    Ok(Receipt { order: order.to_owned(), cents, attempt: call.attempt() })
}

async fn handle(
    State(app): State<App>,
    Path(order): Path<String>,
    Json(Charge { cents }): Json<Charge>,
) -> Result<Json<Receipt>, ChargeError> {
    Ok(Json(charge(&app, &order, cents).await?))
}

impl IntoResponse for ChargeError {
    fn into_response(self) -> Response {
        match self {
            Self::NoCall => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            // A status and a problem without private text: 422 for another amount, 409 while the charge runs.
            Self::Idem(error) => error.into_response(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = DynStore::new(SqliteStore::open("shop.db")?);
    let app = App { store, gateway: Arc::default() };
    let router = Router::new().route("/orders/{order}/charge", post(handle)).with_state(app);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    axum::serve(listener, router).with_graceful_shutdown(idem::terminated()).await?;
    idem::drain(Duration::from_secs(20)).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app() -> App {
        App { store: DynStore::new(idem::MemoryStore::new()), gateway: Arc::default() }
    }

    #[tokio::test]
    async fn a_client_that_asks_twice_is_charged_once() {
        let app = app();
        let first = charge(&app, "42", 1999).await.unwrap();
        assert_eq!(charge(&app, "42", 1999).await.unwrap(), first);
        assert_eq!(app.gateway.charges.lock().unwrap().len(), 1);
        assert!(matches!(charge(&app, "42", 1).await, Err(ChargeError::Idem(idem::Error::Mismatch { .. }))));
    }

    #[tokio::test]
    async fn a_call_that_broke_off_is_charged_once_too() {
        let app = app();
        tokio::select! {
            biased;
            () = tokio::time::sleep(Duration::from_millis(50)) => {}
            receipt = charge(&app, "42", 1999) => panic!("it did not break off: {receipt:?}"),
        }
        assert_eq!(charge(&app, "42", 1999).await.unwrap().attempt, 2);
        assert_eq!(app.gateway.charges.lock().unwrap().len(), 1);
    }
}
