//! A client of the emulator.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::interceptors::{
    BeforeTransmitInterceptorContextMut, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{
    BehaviorVersion, ConfigBag, Credentials, Intercept, Region, RuntimeComponents,
};
use aws_sdk_dynamodb::error::BoxError;
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

/// Counts the requests that are sent.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<AtomicUsize>);

impl Requests {
    /// How many requests since the last call.
    pub fn taken(&self) -> usize {
        self.0.swap(0, Ordering::SeqCst)
    }
}

impl Intercept for Requests {
    fn name(&self) -> &'static str {
        "requests"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

/// A client whose requests are counted.
pub fn counted(aws: &Aws) -> (Client, Requests) {
    let requests = Requests::default();
    let config = client(aws).config().to_builder().interceptor(requests.clone());
    (Client::from_conf(config.build()), requests)
}

/// Asks for no item with a refusal: what an endpoint answers that does not know this.
#[derive(Debug)]
struct WithoutItems;

impl Intercept for WithoutItems {
    fn name(&self) -> &'static str {
        "without items"
    }

    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let body = context.request_mut().body_mut();
        let text = String::from_utf8(body.bytes().unwrap_or_default().to_vec())?;
        // Of the same length.
        *body = text.replace("\"ALL_OLD\"", "\"NONE\"   ").into();
        Ok(())
    }
}

/// A client of an endpoint that does not return items with refusals, and counts requests.
pub fn without_items(aws: &Aws) -> (Client, Requests) {
    let (client, requests) = counted(aws);
    let config = client.config().to_builder().interceptor(WithoutItems);
    (Client::from_conf(config.build()), requests)
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
