//! The worker on each broker.

use std::process::Command;
use std::time::{Duration, Instant};

use demo::brokers::{Broker, OnKafka, OnNats, OnRabbitMq, OnSqs};
use demo::{Failure, Setup};
use idem_test_servers::Redis;
use idem_test_servers::program::Process;

/// Starts a worker with these options, and returns the sorted lines that it prints.
async fn worker<B: Broker>(broker: &B, redis: &Redis, options: &[&str]) -> Result<Vec<String>, Failure> {
    let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
    worker.args(["--broker", &B::KIND.name(), "--url", &broker.address(), "--redis", &redis.url()]);
    worker.env("AWS_ENDPOINT_URL", broker.address()).env("AWS_REGION", "us-east-1");
    worker.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    let (worker, begin) = (Process::start(worker.args(options)), Instant::now());
    // A worker without options gets SIGTERM when the queue is empty. A worker with options ends by itself.
    if options.is_empty() {
        while broker.waiting().await? > 0 {
            assert!(begin.elapsed() < Duration::from_secs(120), "the queue is not empty: {:?}", worker.end());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.signal("-TERM");
    }
    let ended = worker.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut lines: Vec<_> = ended.stdout.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    Ok(lines)
}

/// Sends an order twice, another order once, and a message that is not an order. Lets the worker empty the
/// queue. The message that is not an order is set aside, sent back, and set aside again.
async fn every_order_is_shipped_once<B: Broker>() -> Result<(), Failure> {
    let (broker, redis) = (B::start(&Setup::default()).await?, Redis::start());
    let (first, second) = (r#"{"id":1,"pieces":1}"#, r#"{"id":2,"pieces":1}"#);
    broker.send([first, "no order", first, second].map(str::to_owned).into()).await?;
    assert_eq!(worker(&broker, &redis, &[]).await?, ["ships order 1", "ships order 2"]);

    for (option, letters) in [("--dead-letters", 1), ("--redrive", 1), ("--dead-letters", 0)] {
        let printed = worker(&broker, &redis, &[option]).await?;
        assert!(
            printed.len() == letters && printed.iter().all(|line| line.contains(" terminal ")),
            "{printed:?}"
        );
    }
    assert_eq!(broker.waiting().await?, 1);
    assert!(worker(&broker, &redis, &[]).await?.is_empty());
    assert_eq!(worker(&broker, &redis, &["--dead-letters"]).await?.len(), 1);
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
