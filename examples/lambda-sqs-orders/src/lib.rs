//! Ships orders: a Lambda function on an SQS queue, on the idempotent function [`ship`].

pub mod mapping;

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_sdk_sqs::types::MessageAttributeValue;
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem::lambda::batch::{Batch, BatchRecord as _, BatchResponse, OnReject};
use idem::message::{Dispose, Disposition, Reason};
use idem::{DynamoDbStore, Outcome, idempotent};
use lambda_runtime::LambdaEvent;
use serde::{Deserialize, Serialize};

/// What [`ship`] needs.
#[derive(Debug)]
pub struct App {
    /// Where results are kept.
    pub store: DynamoDbStore,
    /// Where the effects go: one line each.
    pub ledger: PathBuf,
    /// Where it is told what was answered, for whoever checks: one line each.
    pub answers: Option<PathBuf>,
    /// Where messages go that no delivery would help; left to the queue's redrive policy if there is none.
    pub dead_letters: Option<DeadLetters>,
    /// How long the work takes.
    pub work: Duration,
    /// How long a silent worker keeps an order.
    pub lease: Duration,
}

/// A queue for messages that no delivery would help, of the same kind, standard or FIFO, as theirs.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// Who sends to it.
    pub sqs: aws_sdk_sqs::Client,
    /// Its URL.
    pub queue: String,
}

/// An order, as it stands in a message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Which order.
    pub id: u64,
    /// How many pieces.
    pub pieces: u32,
}

/// What shipping gives.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Shipment {
    /// The parcel's number.
    pub parcel: String,
}

/// Why an order is not shipped.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum ShipError {
    /// There is nothing to ship: no delivery will change that.
    #[error("an order of no pieces")]
    Empty,
    /// The message is no order.
    #[error("the message is no order")]
    NoOrder,
    /// The effect could not be had.
    #[error("the ledger cannot be written: {0}")]
    Ledger(String),
    /// It did not come to the body.
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl ShipError {
    const fn is_final(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl Dispose for ShipError {
    fn disposition(&self, _attempt: u32, proposed: Disposition) -> Disposition {
        match self {
            // No delivery makes an order of it.
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
    // At random, so that no two attempts give the same, of one order or of two.
    Ok(Shipment { parcel: format!("P{:016x}", rand::random::<u64>()) })
}

/// The function that Lambda calls.
///
/// # Errors
///
/// None: what fails is in the response.
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

/// Sends a rejected message on, if there is where to.
async fn set_aside(to: Option<&DeadLetters>, message: SqsMessage, reason: Reason) -> OnReject {
    let Some(DeadLetters { sqs, queue }) = to else { return OnReject::Redrive };
    let text = MessageAttributeValue::builder().data_type("String").string_value(reason.as_str()).build();
    let (Ok(text), Some(body)) = (text, &message.body) else { return OnReject::Redrive };
    let mut send = sqs.send_message().queue_url(queue).message_body(body).message_attributes("reason", text);
    if let Some(group) = message.group() {
        // By its own identifier the queue knows it, if it is sent on twice.
        send = send.message_group_id(group).set_message_deduplication_id(message.message_id.clone());
    }
    match send.send().await {
        Ok(_) => OnReject::Acknowledge,
        Err(_) => OnReject::Redrive,
    }
}

/// One line in one write, so that lines of several processes do not mix.
///
/// # Errors
///
/// The file's.
pub fn append(file: &std::path::Path, line: &str) -> std::io::Result<()> {
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

/// The configuration of the environment, with an HTTP client of its own for each who asks.
pub async fn configuration() -> SdkConfig {
    let client = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(CryptoMode::Ring))
        .build_https();
    let loader = aws_config::defaults(aws_config::BehaviorVersion::latest());
    loader.http_client(client).load().await
}
