//! The worker on each broker.

use std::process::Command;
use std::time::{Duration, Instant};

use demo::brokers::{Broker, OnKafka, OnNats, OnRabbitMq, OnSqs};
use demo::{Failure, Setup};
use idem_test_servers::Redis;
use idem_test_servers::program::Process;

/// A broker and the store of its workers.
struct Rig<B> {
    broker: B,
    redis: Redis,
}

impl<B: Broker> Rig<B> {
    fn worker(&self, options: &[&str]) -> Process {
        let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
        worker.args([
            "--broker",
            &B::KIND.name(),
            "--url",
            &self.broker.address(),
            "--redis",
            &self.redis.url(),
        ]);
        worker.env("AWS_ENDPOINT_URL", self.broker.address()).env("AWS_REGION", "us-east-1");
        worker.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
        Process::start(worker.args(options))
    }

    /// Lets a worker empty the queue. Returns what it shipped.
    async fn work_off(&self) -> Result<Vec<String>, Failure> {
        let (worker, begin) = (self.worker(&[]), Instant::now());
        while self.broker.waiting().await? > 0 {
            assert!(begin.elapsed() < Duration::from_secs(120), "the queue is not empty: {:?}", worker.end());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        worker.signal("-TERM");
        Ok(lines(worker))
    }

    /// The dead letters that the worker prints with this option.
    fn letters(&self, option: &str) -> usize {
        let printed = lines(self.worker(&[option]));
        println!("worker {option}: {printed:?}");
        assert!(printed.iter().all(|line| line.contains(" terminal ")), "{printed:?}");
        printed.len()
    }
}

/// The sorted lines of a worker that has ended or ends.
fn lines(worker: Process) -> Vec<String> {
    let ended = worker.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let mut lines: Vec<_> = ended.stdout.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Sends an order twice, another one, and a message that is not an order, and lets the worker empty the queue. The message that is
/// not an order is set aside, sent back, and set aside again.
async fn every_order_is_shipped_once<B: Broker>() -> Result<(), Failure> {
    let rig = Rig { broker: B::start(&Setup::default()).await?, redis: Redis::start() };
    let first = br#"{"id":1,"pieces":1}"#.to_vec();
    let second = br#"{"id":2,"pieces":1}"#.to_vec();
    rig.broker.send(vec![first.clone(), b"no order".to_vec(), first, second]).await?;
    assert_eq!(rig.work_off().await?, ["ships order 1", "ships order 2"]);

    assert_eq!(rig.letters("--dead-letters"), 1);
    assert_eq!(rig.letters("--redrive"), 1);
    assert_eq!((rig.letters("--dead-letters"), rig.broker.waiting().await?), (0, 1));
    assert!(rig.work_off().await?.is_empty());
    assert_eq!(rig.letters("--dead-letters"), 1);
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
