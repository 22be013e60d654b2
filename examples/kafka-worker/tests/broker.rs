//! The worker and a real broker: what is delivered again, to whom, and what comes of it.

use std::future::pending;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idem::{DynStore, MemoryStore};
use idem_test_servers::{Kafka, Redis};
use kafka_worker::topics::Topics;
use kafka_worker::{CONCURRENCY, ship, work};
use tempfile::TempDir;
use tokio::sync::oneshot;
use worker_demo::{Ledger, Order, Shop};

const LEASE: Duration = Duration::from_millis(1_500);

/// As many as the worker's own process takes it for.
const PARTITIONS: i32 = 6;

fn order(id: usize) -> Vec<u8> {
    format!("{{\"id\":{id},\"pieces\":1}}").into_bytes()
}

/// A broker, and a shop in this process.
struct Here {
    kafka: Kafka,
    topics: Topics,
    shop: Shop,
    folder: TempDir,
}

impl Here {
    async fn with(kafka: Kafka, work: Duration) -> Self {
        let topics = Topics::open(&kafka.servers(), "orders", PARTITIONS).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::new(DynStore::new(MemoryStore::new()), LEASE, folder.path().to_owned(), work);
        Self { kafka, topics, shop, folder }
    }

    /// Sends orders, spread over the partitions.
    async fn send(&self, orders: impl IntoIterator<Item = usize>) {
        for (number, id) in orders.into_iter().enumerate() {
            self.topics.send(&number.to_string(), &order(id)).await.unwrap();
        }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        Ledger::new(self.folder.path().to_owned()).read(file).unwrap()
    }

    async fn work(&self) {
        let ended = work(&self.topics, &self.shop, pending()).await;
        panic!("the worker ended: {ended:?}");
    }

    async fn emptied(&self) {
        until("everything is committed", async || {
            self.topics.waiting().await.is_ok_and(|waiting| waiting == 0)
        })
        .await;
    }

    /// Checks that so many orders were shipped once each.
    fn shipped_once(&self, orders: usize) {
        let mut effects = self.lines("effects");
        assert_eq!(effects.len(), orders);
        effects.sort();
        effects.dedup();
        assert_eq!(effects.len(), orders);
    }
}

/// Returns once `condition` holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < Duration::from_secs(120), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_order_that_was_shipped_and_not_committed_comes_again_and_gets_the_recorded_result() {
    let here = Here::with(Kafka::start(), Duration::ZERO).await;
    here.send([1]).await;
    // By a worker that went away before it could commit.
    let first = ship(&here.shop, &Order { id: 1, pieces: 1 }).await.unwrap();
    tokio::select! { () = here.work() => {} () = here.emptied() => {} }
    assert_eq!(here.lines("effects"), ["1"]);
    assert_eq!(here.lines("answers"), [format!("1 {} replayed", first.parcel)]);
}

#[tokio::test]
async fn two_workers_that_have_one_order_ship_it_once_and_tell_the_same() {
    let here = Here::with(Kafka::start(), Duration::from_millis(300)).await;
    here.send((0..20).flat_map(|id| [id, id])).await;
    tokio::select! { () = here.work() => {} () = here.work() => {} () = here.emptied() => {} }
    here.shipped_once(20);
    let answers = here.lines("answers");
    let mut told: Vec<_> = answers.iter().map(|answer| answer.rsplit_once(' ').unwrap().0).collect();
    assert!(told.len() >= 40);
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 20);
}

#[tokio::test]
async fn what_can_never_be_handled_is_set_aside_and_holds_nothing_up() {
    let here = Here::with(Kafka::start(), Duration::ZERO).await;
    for body in [b"no order".to_vec(), b"{\"id\":7,\"pieces\":0}".to_vec(), order(1), order(2)] {
        // All in one partition.
        here.topics.send("same", &body).await.unwrap();
    }
    // Recorded already, of other arguments.
    ship(&here.shop, &Order { id: 1, pieces: 2 }).await.unwrap();
    tokio::select! { () = here.work() => {} () = here.emptied() => {} }
    assert_eq!(here.topics.dead_letters().await.unwrap(), 3);
    assert_eq!(here.lines("effects"), ["1", "2"]);
}

#[tokio::test]
async fn partitions_that_go_to_another_worker_go_when_what_is_in_work_is_done() {
    let here = Here::with(Kafka::start(), Duration::from_millis(400)).await;
    let orders = 10 * CONCURRENCY;
    here.send(0..orders).await;
    let joins = async {
        until("the first works", async || here.lines("effects").len() > CONCURRENCY).await;
        here.work().await;
    };
    tokio::select! { () = here.work() => {} () = joins => {} () = here.emptied() => {} }
    here.shipped_once(orders);
    // Nobody was given what another had.
    assert_eq!(here.lines("deliveries").len(), orders);
}

#[tokio::test]
async fn what_takes_too_long_is_in_flight_for_the_next_worker_and_is_not_done_twice() {
    // Longer than partitions that are to go are kept.
    let here = Here::with(Kafka::start(), Duration::from_secs(6)).await;
    let orders = 2 * CONCURRENCY;
    here.send(0..orders).await;
    let joins = async {
        until("the first works", async || here.lines("effects").len() == CONCURRENCY).await;
        here.work().await;
    };
    tokio::select! { () = here.work() => {} () = joins => {} () = here.emptied() => {} }
    here.shipped_once(orders);
    // The other one was given some of what the first was still at.
    assert!(here.lines("deliveries").len() > orders);
}

#[tokio::test]
async fn a_worker_that_is_shut_down_commits_what_is_done_and_leaves_the_rest() {
    let here = Here::with(Kafka::start(), Duration::from_millis(500)).await;
    here.send(0..40).await;
    let (end, ended) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = ended.await;
    };
    let (summary, ()) = tokio::join!(work(&here.topics, &here.shop, shutdown), async {
        until("it works", async || here.lines("effects").len() == CONCURRENCY).await;
        end.send(()).unwrap();
    });
    assert_eq!(summary.unwrap().acknowledged, CONCURRENCY as u64);
    assert_eq!(here.lines("effects").len(), CONCURRENCY);
    assert!(here.topics.waiting().await.unwrap() >= 30);
    tokio::select! { () = here.work() => {} () = here.emptied() => {} }
    here.shipped_once(40);
}

#[tokio::test]
async fn a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on() {
    let mut here = Here::with(Kafka::persistent(), Duration::from_millis(50)).await;
    here.send(0..100).await;
    let (topics, shop) = (here.topics.clone(), here.shop.clone());
    let worker = tokio::spawn(async move { work(&topics, &shop, pending()).await.map(drop) });
    until("it works", async || here.lines("effects").len() > 20).await;
    here.kafka.server().kill();
    assert!(here.lines("effects").len() < 100);
    here.kafka.server().restart();
    here.emptied().await;
    assert!(!worker.is_finished());
    worker.abort();
    here.shipped_once(100);
}

/// A worker of its own.
struct Process(Child);

impl Process {
    fn start(kafka: &Kafka, store: &str, folder: &Path, work: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kafka-worker"));
        command.arg("worker").args([&kafka.servers(), store]).arg(folder).arg(work.as_millis().to_string());
        Self(command.stdin(Stdio::piped()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_worker_killed_between_effect_and_commit_is_followed_by_one_that_records_once() {
    let (here, redis) = (Here::with(Kafka::start(), Duration::ZERO).await, Redis::start());
    here.send([1]).await;
    let folder = here.folder.path();
    let first = Process::start(&here.kafka, &redis.url(), folder, Duration::from_secs(600));
    until("the first had the effect", async || here.lines("effects").len() == 1).await;
    drop(first);
    let _second = Process::start(&here.kafka, &redis.url(), folder, Duration::ZERO);
    here.emptied().await;
    // The effect is not part of the result's commit, so it is there twice. The result is not.
    assert_eq!(here.lines("effects"), ["1", "1"]);
    assert_eq!(here.lines("answers").len(), 1);
}
