//! The arms on a key-value bucket of NATS: `create`, `update` and `get`, and this library.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::kv::{Config, Store as Bucket};
use idem::NatsKvStore;
use idem_test_servers::Nats;

use crate::arm::{Anything, Arm, Contest, RECEIPT, call, none, ours, wrong};

async fn hand(url: &str) -> Anything<Arm> {
    let jetstream = jetstream::new(async_nats::connect(url).await?);
    let config = Config { bucket: "by-hand".to_owned(), history: 1, ..Config::default() };
    let bucket = jetstream.create_or_update_key_value(config).await?;
    let reading = bucket.clone();
    Ok(Arm {
        name: "a create, an update, a get",
        fresh: call(move |key| pay(bucket.clone(), key)),
        replay: call(move |key| look(reading.clone(), key)),
        work: None,
    })
}

async fn pay(bucket: Bucket, key: String) -> Anything<()> {
    let revision = bucket.create(&key, "in flight".into()).await?;
    bucket.update(&key, RECEIPT.into(), revision).await?;
    Ok(())
}

async fn look(bucket: Bucket, key: String) -> Anything<()> {
    let receipt = bucket.get(key).await?;
    if receipt.is_some_and(|receipt| receipt == RECEIPT) { Ok(()) } else { Err(wrong()) }
}

async fn arms(url: String) -> Anything<Vec<Arm>> {
    let mut arms = vec![hand(&url).await?];
    // Everything runs on one machine with one clock.
    arms.extend(ours(&NatsKvStore::builder(&url, "idem").clock_skew(Duration::ZERO).connect().await?));
    arms.push(none());
    Ok(arms)
}

pub(crate) fn contest() -> Contest {
    let mut server = Nats::start();
    Contest {
        store: "NATS key-value",
        connect: Box::new(|url| Box::pin(arms(url))),
        url: server.url(),
        port: Some(server.server().port()),
        _kept: Box::new(server),
    }
}
