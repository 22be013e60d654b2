//! The arms on NATS key-value: this library, and code by hand on a bucket. By hand, a fresh call is a
//! `create` and an `update`, and a replay is a `get`.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::kv::{Config, Store as Bucket};
use idem::NatsKvStore;
use idem_test_servers::Nats;

use crate::arm::{Anything, Arm, Contest, RECEIPT, beside, right};

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let jetstream = jetstream::new(async_nats::connect(url.as_str()).await?);
    let config = Config { bucket: "by-hand".to_owned(), history: 1, ..Config::default() };
    let bucket = jetstream.create_or_update_key_value(config).await?;
    let hand = Arm::new("a create, an update, a get", &bucket, pay, look);
    // Everything runs on one machine with one clock.
    let store = NatsKvStore::builder(&url, "idem").clock_skew(Duration::ZERO).connect().await?;
    Ok(beside(hand, &store))
}

async fn pay(bucket: Bucket, key: String) -> Anything<()> {
    let revision = bucket.create(&key, "in flight".into()).await?;
    bucket.update(&key, RECEIPT.into(), revision).await?;
    Ok(())
}

async fn look(bucket: Bucket, key: String) -> Anything<()> {
    let receipt = bucket.get(key).await?;
    right(receipt.is_some_and(|receipt| receipt == RECEIPT))
}

pub(crate) fn contest() -> Anything<Contest> {
    let mut server = Nats::start();
    Ok(Contest::new("NATS key-value", server.url(), Some(server.server().port()), server, arms))
}
