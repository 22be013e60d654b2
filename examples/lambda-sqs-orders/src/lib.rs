//! Ships orders: a Lambda function on an SQS queue, on the idempotent function [`ship`].

pub mod mapping;

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem::lambda::batch::{Batch, BatchRecord as _, BatchResponse, OnReject};
use idem::message::{Disposition, Reason};
use idem::{DynamoDbStore, Outcome, idempotent};
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, Serialize};

/// The state of [`ship`].
#[derive(Debug)]
pub struct App {
    /// The store of results.
    pub store: DynamoDbStore,
    /// The file of the effects: one line each.
    pub ledger: PathBuf,
    /// The file of the answers, for the check: one line each.
    pub answers: Option<PathBuf>,
    /// The queue for messages that can never be handled. Without it the queue's redrive policy moves them.
    pub dead_letters: Option<DeadLetters>,
    /// How long the work takes.
    pub work: Duration,
    /// The lease of an order.
    pub lease: Duration,
}

/// A queue for messages that can never be handled. It must be FIFO if the source queue is.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// The client that sends to it.
    pub sqs: aws_sdk_sqs::Client,
    /// The queue's URL.
    pub queue: String,
}

/// The content of a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The order's number.
    pub id: u64,
    /// How many pieces.
    pub pieces: u32,
}

/// The result of shipping.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shipment {
    /// The parcel's number.
    pub parcel: String,
}

/// Why an order is not shipped.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ShipError {
    /// The order has no pieces; another delivery does not change that.
    #[error("an order of no pieces")]
    Empty,
    /// The message is not an order.
    #[error("the message is not an order")]
    NoOrder,
    /// The effect failed.
    #[error("the ledger cannot be written: {0}")]
    Ledger(String),
    /// The body did not run.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl ShipError {
    const fn is_final(&self) -> bool {
        matches!(self, Self::Empty)
    }

    const fn disposition(&self, _attempt: u32, proposed: Disposition) -> Disposition {
        match self {
            // Another delivery does not change the message.
            Self::NoOrder => Disposition::reject(Reason::Terminal),
            _ => proposed,
        }
    }
}

/// Ships an order, once.
///
/// # Errors
///
/// [`ShipError`].
#[idempotent(
    key = "order/{order.id}",
    scope = "orders.ship",
    fingerprint = order.pieces,
    store = app.store,
    ttl = "24h",
    lease = app.lease,
    terminal = ShipError::is_final
)]
pub async fn ship(app: &App, order: &Order) -> Result<Shipment, ShipError> {
    if order.pieces == 0 {
        return Err(ShipError::Empty);
    }
    append(&app.ledger, &format!("{}\n", order.id)).map_err(|error| ShipError::Ledger(error.to_string()))?;
    tokio::time::sleep(app.work).await;
    // A random parcel, so that every attempt has another one.
    Ok(Shipment { parcel: format!("P{:016x}", rand::random::<u64>()) })
}

/// The function that Lambda calls.
///
/// # Errors
///
/// None: the response lists the messages that failed.
pub async fn handle(app: &App, event: LambdaEvent<SqsEvent>) -> Result<BatchResponse, Infallible> {
    let batch = Batch::new()
        .deadline(event.context.deadline())
        .dispose(ShipError::disposition)
        .on_reject(|message, reason| set_aside(app.dead_letters.as_ref(), message, reason));
    Ok(batch.process(event.payload.records, |message| handle_one(app, message)).await)
}

async fn handle_one(app: &App, message: SqsMessage) -> Result<Shipment, ShipError> {
    let body = message.body.unwrap_or_default();
    let order: Order = serde_json::from_str(&body).map_err(|_| ShipError::NoOrder)?;
    let observed = idem::observe(ship(app, &order)).await;
    if let (Some(answers), Ok(shipment)) = (&app.answers, &observed.value) {
        let replayed = observed.outcome.is_some_and(|outcome: Outcome| outcome.is_replayed());
        let line =
            format!("{} {} {}\n", order.id, shipment.parcel, if replayed { "replayed" } else { "ran" });
        append(answers, &line).map_err(|error| ShipError::Ledger(error.to_string()))?;
    }
    observed.value
}

/// Sends a rejected message to the dead letters, if there is a queue for them.
async fn set_aside(to: Option<&DeadLetters>, message: SqsMessage, reason: Reason) -> OnReject {
    let Some(DeadLetters { sqs, queue }) = to else { return OnReject::Redrive };
    let text = MessageAttributeValue::builder().data_type("String").string_value(reason.as_str()).build();
    let (Ok(text), Some(body)) = (text, &message.body) else { return OnReject::Redrive };
    let mut send = sqs.send_message().queue_url(queue).message_body(body).message_attributes("reason", text);
    // Keeps the message's own attributes, at most nine: SQS allows ten, and `reason` is one.
    for (name, own) in message.message_attributes.iter().filter(|(name, _)| *name != "reason").take(9) {
        let attribute = MessageAttributeValue::builder()
            .set_data_type(own.data_type.clone())
            .set_string_value(own.string_value.clone())
            .set_binary_value(own.binary_value.clone().map(|bytes| Blob::new(bytes.0)));
        let Ok(attribute) = attribute.build() else { return OnReject::Redrive };
        send = send.message_attributes(name, attribute);
    }
    if let Some(group) = message.group() {
        // The message's own identifier lets the queue drop a second copy.
        send = send.message_group_id(group).set_message_deduplication_id(message.message_id.clone());
    }
    match send.send().await {
        Ok(_) => OnReject::Acknowledge,
        Err(_) => OnReject::Redrive,
    }
}

/// Appends a line in one write, so that lines of several processes do not mix.
///
/// # Errors
///
/// The file cannot be written.
pub fn append(file: &std::path::Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

/// The AWS configuration from the environment. Each call makes a new HTTP client.
pub async fn configuration() -> SdkConfig {
    let client = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let loader = aws_config::defaults(aws_config::BehaviorVersion::latest());
    loader.http_client(client).load().await
}
