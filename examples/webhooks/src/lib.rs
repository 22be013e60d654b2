//! Receives webhooks: each event is handled once, however often its sender sends it.

use std::error::Error;

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use idem::{Store, context};
use idem_webhooks::{Delivery, Sender, WebhookLayer};

/// Handles an event. After an answer other than 2xx, or a panic, the sender sends the event again.
async fn handle(delivery: Delivery, event: Bytes) {
    let again = context().is_some_and(|call| call.recovered());
    // The effect of the event: here, a line of output.
    println!("{} sent an event of {} bytes; after a crash: {again}", delivery.sender(), event.len());
}

/// The routes: one for each sender, with its secret.
///
/// # Errors
///
/// If a secret is empty.
pub fn app<S: Store>(store: S, secret: &str) -> Result<Router, Box<dyn Error>> {
    let stripe = WebhookLayer::new(Sender::stripe([secret])?, store.clone())?;
    let github = WebhookLayer::new(Sender::github([secret])?, store)?;
    Ok(Router::new()
        .route("/stripe", post(handle).layer(stripe))
        .route("/github", post(handle).layer(github)))
}
