//! The worker on each broker.

use std::process::Command;
use std::time::{Duration, Instant};

use demo::brokers::{Broker, OnKafka, OnNats, OnRabbitMq, OnSqs};
use demo::{Failure, Setup};
use idem_test_servers::Redis;
use idem_test_servers::program::Process;

/// Sends an order twice, another one, and a message that is not an order, and lets the worker empty the queue.
async fn every_order_is_shipped_once<B: Broker>() -> Result<(), Failure> {
    let (broker, redis) = (B::start(&Setup::default()).await?, Redis::start());
    let first = br#"{"id":1,"pieces":1}"#.to_vec();
    broker.send(vec![first.clone(), b"no order".to_vec(), first, br#"{"id":2,"pieces":1}"#.to_vec()]).await?;

    let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
    worker.args(["--broker", B::KIND.name(), "--url", &broker.address(), "--redis", &redis.url()]);
    worker.env("AWS_ENDPOINT_URL", broker.address()).env("AWS_REGION", "us-east-1");
    worker.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    let worker = Process::start(&mut worker);
    let begin = Instant::now();
    while broker.waiting().await? > 0 {
        assert!(begin.elapsed() < Duration::from_secs(60), "the queue is not empty: {:?}", worker.end());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    worker.signal("-TERM");
    let ended = worker.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut shipped: Vec<&str> = ended.stdout.lines().collect();
    shipped.sort_unstable();
    assert_eq!(shipped, ["ships order 1", "ships order 2"], "{ended:?}");
    assert_eq!(broker.dead_letters().await?, [b"no order"]);
    Ok(())
}

#[tokio::test]
async fn a_worker_on_nats_ships_every_order_once() -> Result<(), Failure> {
    every_order_is_shipped_once::<OnNats>().await
}

#[tokio::test]
async fn a_worker_on_rabbitmq_ships_every_order_once() -> Result<(), Failure> {
    every_order_is_shipped_once::<OnRabbitMq>().await
}

#[tokio::test]
async fn a_worker_on_kafka_ships_every_order_once() -> Result<(), Failure> {
    every_order_is_shipped_once::<OnKafka>().await
}

#[tokio::test]
async fn a_worker_on_sqs_ships_every_order_once() -> Result<(), Failure> {
    every_order_is_shipped_once::<OnSqs>().await
}
