//! A stream of NATS JetStream, its consumer and its dead letters.

use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::consumer::{PullConsumer, pull};
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, Context};

use crate::Failure;

/// How long a stream keeps a message.
const MAX_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Connects. Creates the stream, its consumer `shippers` with these settings, and the stream `NAME-dead`, if
/// they are missing.
pub async fn open(url: &str, name: &str, settings: pull::Config) -> Result<(Context, PullConsumer), Failure> {
    let jetstream = jetstream::new(async_nats::connect(url).await?);
    let dead = stream::Config { name: format!("{name}-dead"), ..stream::Config::default() };
    jetstream.get_or_create_stream(dead).await?;
    let orders = stream::Config {
        name: name.to_owned(),
        retention: RetentionPolicy::WorkQueue,
        max_age: MAX_AGE,
        ..stream::Config::default()
    };
    let orders = jetstream.get_or_create_stream(orders).await?;
    let shippers = pull::Config { durable_name: Some("shippers".to_owned()), ..settings };
    let consumer = orders.get_or_create_consumer("shippers", shippers).await?;
    Ok((jetstream, consumer))
}

/// Sends a message, with the header `Trace` whose value is `t-` followed by the body.
pub async fn send(jetstream: &Context, name: &str, body: &str) -> Result<(), Failure> {
    let mut headers = HeaderMap::new();
    headers.insert("Trace", format!("t-{body}"));
    // The stream of the dead letters refuses a message with this header, so a dead letter must not have it.
    headers.insert("Nats-Expected-Stream", name);
    let (subject, payload) = (name.to_owned(), body.to_owned().into());
    jetstream.publish_with_headers(subject, headers, payload).await?.await?;
    Ok(())
}

/// How many messages a stream holds.
pub async fn left(jetstream: &Context, name: &str) -> Result<u64, Failure> {
    Ok(jetstream.get_stream(name).await?.info().await?.state.messages)
}
