//! A client of the emulator.
#![allow(dead_code, unreachable_pub)]

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_http_client::Builder;
use idem_test_servers::Aws;

/// A client with its own connections.
pub fn client(aws: &Aws) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(aws.url())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("test", "test", None, None, "test"))
        .http_client(Builder::new().build_http());
    Client::from_conf(config.build())
}

/// The partition key of the record `key` in the scope `test`, in a store without a prefix.
pub fn id(key: &str) -> AttributeValue {
    AttributeValue::S(format!("test#{key}"))
}
