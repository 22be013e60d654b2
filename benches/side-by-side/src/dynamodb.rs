//! The arms on an emulator of DynamoDB: code by hand, and this library. By hand, a fresh call is a
//! conditional `PutItem` and a conditional `UpdateItem`, and a replay is a consistent `GetItem`. The speed of
//! the emulator says nothing about the real service. Only the ratios between the arms and the numbers of
//! round trips do.

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use idem::DynamoDbStore;
use idem_test_servers::Aws;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

const TABLE: &str = "side-by-side";

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

async fn pay(client: Client, key: String) -> Anything<()> {
    let key = text(&format!("by hand/{key}"));
    client
        .put_item()
        .table_name(TABLE)
        .item("id", key.clone())
        .item("state", text("in_flight"))
        .item("owner", text("worker"))
        .condition_expression("attribute_not_exists(#k)")
        .expression_attribute_names("#k", "id")
        .send()
        .await?;
    client
        .update_item()
        .table_name(TABLE)
        .key("id", key)
        .update_expression("SET #s = :completed, #r = :result")
        .condition_expression("#o = :worker AND #s = :in_flight")
        .expression_attribute_names("#s", "state")
        .expression_attribute_names("#r", "result")
        .expression_attribute_names("#o", "owner")
        .expression_attribute_values(":completed", text("completed"))
        .expression_attribute_values(":in_flight", text("in_flight"))
        .expression_attribute_values(":worker", text("worker"))
        .expression_attribute_values(":result", AttributeValue::B(Blob::new(RECEIPT)))
        .send()
        .await?;
    Ok(())
}

async fn look(client: Client, key: String) -> Anything<()> {
    let got = client
        .get_item()
        .table_name(TABLE)
        .key("id", text(&format!("by hand/{key}")))
        .consistent_read(true)
        .send()
        .await?;
    let result = got.item.as_ref().and_then(|item| item.get("result")?.as_b().ok());
    right(result.is_some_and(|result| result.as_ref() == RECEIPT.as_bytes()))
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(url)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "benches"))
        .http_client(aws_smithy_http_client::Builder::new().build_http());
    let client = Client::from_conf(config.build());
    let hand = Arm::new("a put, an update, a get", &client, pay, look);
    // Everything runs on one machine with one clock.
    let store = DynamoDbStore::builder(client, TABLE).clock_skew(Duration::ZERO).build();
    store.create_table().await?;
    Ok(beside(hand, &store))
}

pub(crate) fn contest() -> Anything<Contest> {
    let mut emulator = Aws::start();
    let port = emulator.server().port();
    Ok(Contest::new("DynamoDB (emulator)", emulator.url(), Some(port), emulator, arms))
}
