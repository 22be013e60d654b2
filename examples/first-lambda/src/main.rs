//! A Lambda function on an SQS queue that ships orders: each once, however often it is delivered.

use aws_config::BehaviorVersion;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem::lambda::batch::{Batch, BatchResponse};
use idem::{DynamoDbStore, idempotent};
use lambda_runtime::{Error, LambdaEvent, service_fn};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Order {
    id: u64,
    pieces: u32,
}

#[derive(Debug, thiserror::Error)]
enum ShipError {
    #[error("the message is not an order: {0}")]
    NotAnOrder(#[from] serde_json::Error),
    #[error(transparent)]
    Idem(#[from] idem::Error),
}

#[idempotent(key = "order/{order.id}", scope = "orders.ship", fingerprint = order.pieces, ttl = "14d", store = store)]
async fn ship(store: &DynamoDbStore, order: &Order) -> Result<String, ShipError> {
    // Ship the order here. Give the carrier `context().downstream_key("carrier")`, which is the same at every
    // attempt.
    Ok(format!("parcel of order {} with {} pieces", order.id, order.pieces))
}

async fn handle_one(store: &DynamoDbStore, message: SqsMessage) -> Result<String, ShipError> {
    let order: Order = serde_json::from_str(message.body.as_deref().unwrap_or_default())?;
    ship(store, &order).await
}

/// The response names the messages to deliver again. Lambda deletes all other messages.
async fn handle(store: &DynamoDbStore, event: LambdaEvent<SqsEvent>) -> Result<BatchResponse, Error> {
    let batch = Batch::new().deadline(event.context.deadline());
    Ok(batch.process(event.payload.records, |message| handle_one(store, message)).await)
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt::init();
    let tls = tls::Provider::Rustls(CryptoMode::Ring);
    let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    let config = aws_config::defaults(BehaviorVersion::latest()).http_client(http).load().await;
    let store = DynamoDbStore::new(aws_sdk_dynamodb::Client::new(&config), "idem");
    let store = &store;
    lambda_runtime::run(service_fn(|event: LambdaEvent<SqsEvent>| handle(store, event))).await
}
