//! AWS Lambda on a queue of SQS: the function, and a worker that calls it as Lambda does.

use std::convert::Infallible;

use aws_lambda_events::event::sqs::{SqsEvent, SqsMessage};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::MessageAttributeValue;
use idem::lambda::batch::{Batch, BatchRecord as _, BatchResponse, OnReject};
use idem::message::{Reason, Summary};
use lambda_runtime::{LambdaEvent, service_fn};

use super::mapping::Mapping;
use super::sqs::{OnSqs, open};
use crate::{Broker, Failure, Kind, Order, Setup, ShipError, Shop};

/// A queue for messages that can never be handled. It must be FIFO if the source queue is.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    /// The client that sends to it.
    pub sqs: Client,
    /// The queue's URL.
    pub queue: String,
}

/// The function that Lambda calls. Without a queue for dead letters the source queue's redrive policy moves rejected messages.
///
/// # Errors
///
/// None: the response lists the messages that failed.
pub async fn handle(
    shop: &Shop,
    dead_letters: Option<&DeadLetters>,
    event: LambdaEvent<SqsEvent>,
) -> Result<BatchResponse, Infallible> {
    let batch = Batch::new()
        .deadline(event.context.deadline())
        .dispose(ShipError::disposition)
        .on_reject(|message, reason| set_aside(dead_letters, message, reason));
    let handler = |message: SqsMessage| {
        shop.handle(Order::parse(message.body.as_deref().unwrap_or_default().as_bytes()))
    };
    Ok(batch.process(event.payload.records, handler).await)
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

/// The emulator of SQS, whose messages the workers give to the function.
#[derive(Debug)]
pub struct OnLambda(OnSqs);

impl Broker for OnLambda {
    const KIND: Kind = Kind::Lambda;

    const STORE: &'static str = "dynamodb";

    fn installed() -> Result<(), String> {
        OnSqs::installed()
    }

    async fn start(setup: &Setup) -> Result<Self, Failure> {
        OnSqs::start(setup).await.map(Self)
    }

    fn kill(&mut self) {
        self.0.kill();
    }

    async fn restart(&mut self) -> Result<(), Failure> {
        self.0.restart().await
    }

    fn address(&self) -> String {
        self.0.address()
    }

    async fn work(
        address: &str,
        shop: &Shop,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Summary, Failure> {
        let (sqs, orders, dead) = open(address).await?;
        let dead_letters = DeadLetters { sqs: sqs.clone(), queue: dead };
        let mapping = Mapping::new(sqs, orders);
        let mut function = service_fn(|event| handle(shop, Some(&dead_letters), event));
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            let messages = tokio::select! {
                biased;
                () = &mut shutdown => return Ok(Summary::default()),
                messages = mapping.take() => messages?,
            };
            if !messages.is_empty() {
                mapping.deliver(messages, &mut function).await?;
            }
        }
    }

    async fn send(&self, bodies: Vec<Vec<u8>>) -> Result<(), Failure> {
        self.0.send(bodies).await
    }

    async fn waiting(&self) -> Result<u64, Failure> {
        self.0.waiting().await
    }

    async fn dead_letters(&self) -> Result<Vec<Vec<u8>>, Failure> {
        self.0.dead_letters().await
    }
}
