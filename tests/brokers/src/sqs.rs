//! Queues of SQS.

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_sqs::types::QueueAttributeName;

use crate::Failure;

/// Creates a queue and the queue `NAME-dead` if they are missing. Returns a client of the emulator, and the
/// URLs of both queues. `visibility` says for each queue how many seconds a message stays hidden while a
/// worker has it. `kind` is the end of the names: nothing, or `.fifo`.
pub async fn open(
    endpoint: &str,
    name: &str,
    kind: &str,
    visibility: [&str; 2],
) -> Result<(Client, String, String), Failure> {
    let config = aws_sdk_sqs::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "tests"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = Client::from_conf(config.build());
    let orders = make(&client, &format!("{name}{kind}"), visibility[0]).await?;
    let dead = make(&client, &format!("{name}-dead{kind}"), visibility[1]).await?;
    Ok((client, orders, dead))
}

async fn make(client: &Client, name: &str, visibility: &str) -> Result<String, Failure> {
    let create = client.create_queue().queue_name(name);
    let mut create = create.attributes(QueueAttributeName::VisibilityTimeout, visibility);
    if name.ends_with(".fifo") {
        create = create.attributes(QueueAttributeName::FifoQueue, "true");
        create = create.attributes(QueueAttributeName::ContentBasedDeduplication, "true");
    }
    create.send().await?.queue_url.ok_or_else(|| "SQS gave no URL".into())
}

/// How many messages are in a queue, including those that are hidden.
pub async fn left(client: &Client, queue: &str) -> Result<u64, Failure> {
    let names = [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ];
    let request = client.get_queue_attributes().queue_url(queue);
    let response = request.set_attribute_names(Some(names.to_vec())).send().await?;
    let attributes = response.attributes.unwrap_or_default();
    Ok(names.iter().filter_map(|name| attributes.get(name)?.parse::<u64>().ok()).sum())
}
