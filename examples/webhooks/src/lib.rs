//! Receives webhooks: each event is handled once, however often its sender sends it.

mod signature;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use idem::{DynStore, idempotent};
use serde::{Deserialize, Serialize};

pub use signature::sign;
use signature::{Scheme, verified};

/// The state of the handlers.
#[derive(Clone)]
pub struct App {
    /// The store of results, which all instances share.
    pub store: DynStore,
    /// The secret that each sender signs with.
    pub secret: Arc<[u8]>,
    /// The events that were handled, in place of an effect.
    pub handled: Arc<Mutex<Vec<String>>>,
    /// How long handling takes.
    pub work: Duration,
}

/// Why an event was not handled.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum WebhookError {
    /// It was not sent by the sender, or it is not an event.
    #[error("not an event of the sender")]
    Refused,
    /// It is in flight, or the store failed.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

/// Handles an event, once. `sender` is part of the key: two senders may choose one id.
///
/// The `ttl` is longer than the time in which a sender, or a person who presses "resend", may repeat an event.
///
/// # Errors
///
/// [`WebhookError`].
#[idempotent(key = "{sender}/{id}", scope = "webhooks.handle", ttl = "30d", store = app.store)]
pub async fn handle(app: &App, sender: &str, id: &str, body: &[u8]) -> Result<(), WebhookError> {
    let event: serde_json::Value = serde_json::from_slice(body).map_err(|_| WebhookError::Refused)?;
    tokio::time::sleep(app.work).await;
    // The effect.
    let text = format!("{sender} {id} {}", event["type"].as_str().unwrap_or("?"));
    app.handled.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    Ok(())
}

/// The routes.
pub fn router(app: App) -> Router {
    Router::new()
        .route("/stripe", post(stripe))
        .route("/github", post(github))
        .route("/svix", post(svix))
        .with_state(app)
}

/// Stripe: the id is in the body, so the signature is checked before the body is read.
async fn stripe(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    #[derive(Deserialize)]
    struct Event {
        id: String,
    }
    if !verified(Scheme::Stripe, &app.secret, &headers, &body) {
        return answer(&Err(WebhookError::Refused));
    }
    match serde_json::from_slice::<Event>(&body) {
        Ok(event) => answer(&handle(&app, "stripe", &event.id, &body).await),
        Err(_) => answer(&Err(WebhookError::Refused)),
    }
}

/// GitHub: the key is the id of the delivery, which a redelivery keeps.
async fn github(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    by_header(&app, Scheme::GitHub, "github", "x-github-delivery", &headers, &body).await
}

/// Svix, senders that use Svix, and senders that follow Standard Webhooks: the signature covers the id.
async fn svix(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    by_header(&app, Scheme::Svix, "svix", "svix-id", &headers, &body).await
}

async fn by_header(
    app: &App,
    scheme: Scheme,
    sender: &str,
    name: &str,
    headers: &HeaderMap,
    body: &[u8],
) -> Response {
    let id = headers.get(name).and_then(|id| id.to_str().ok());
    match id.filter(|_| verified(scheme, &app.secret, headers, body)) {
        Some(id) => answer(&handle(app, sender, id, body).await),
        None => answer(&Err(WebhookError::Refused)),
    }
}

/// The status tells the sender what to do: after anything but 2xx it sends the event again.
fn answer(handled: &Result<(), WebhookError>) -> Response {
    match handled {
        // Handled now, or at an earlier delivery.
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        // A redelivery would not help, but the event must not look handled.
        Err(WebhookError::Refused) => StatusCode::BAD_REQUEST.into_response(),
        // In flight, or the store is down. Not acknowledged, so that the sender sends it again.
        Err(WebhookError::Idem(_)) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
