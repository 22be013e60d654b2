//! A client of the emulator.
#![allow(dead_code, unreachable_pub)]

use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_http_client::Builder;
use idem_dynamodb::DynamoDbStore;
use idem_runtime::protocol::{Claim, ClaimAnswer, Complete, Grant, Owner, StoredResult, Verdict};
use idem_runtime::{Key, RecordKey, Scope, Store};
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

pub fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test.dynamodb").unwrap(), Key::new(key).unwrap())
}

/// The partition key of [`key`], in a store without a prefix.
pub fn id(key: &str) -> AttributeValue {
    AttributeValue::S(format!("test=2Edynamodb#{key}"))
}

pub fn claim() -> Claim {
    Claim::new(Owner::random(), Duration::from_secs(30), Duration::from_secs(3_600))
}

pub fn completion(claim: &Claim, grant: &Grant) -> Complete {
    Complete::new(
        claim.owner,
        grant.fence,
        Verdict::Completed,
        StoredResult::Value("7".into()),
        Duration::from_secs(3_600),
    )
}

/// The grant of a claim that must be granted.
pub async fn granted(store: &DynamoDbStore, key: &RecordKey, claim: &Claim) -> Grant {
    match store.claim(key, claim).await.unwrap() {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("not granted: {other:?}"),
    }
}
