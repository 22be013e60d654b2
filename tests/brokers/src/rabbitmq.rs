//! Queues of RabbitMQ.

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties, Result};

/// A connection, and a channel on it that confirms messages.
pub async fn connect(url: &str) -> Result<(Connection, Channel)> {
    let connection = Connection::connect(url, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    Ok((connection, channel))
}

/// Declares a durable queue with these arguments.
pub async fn declare(channel: &Channel, queue: &str, arguments: FieldTable) -> Result<()> {
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), durable, arguments).await.map(drop)
}

/// Sends a persistent message, with the header `Trace` whose value is `t-` followed by the body.
pub async fn send(channel: &Channel, queue: &str, body: &str) -> Result<()> {
    let mut headers = FieldTable::default();
    headers.insert("Trace".into(), AMQPValue::LongString(format!("t-{body}").into()));
    let properties = BasicProperties::default().with_headers(headers).with_delivery_mode(2);
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish("".into(), queue.into(), options, body.as_bytes(), properties);
    sent.await?.await.map(drop)
}
