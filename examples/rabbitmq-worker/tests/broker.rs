//! The worker and a real broker: what is delivered again, to whom, and what comes of it. RabbitMQ takes its
//! time to start, so one is used for several checks, each with a queue of its own.

use std::future::pending;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idem::{DynStore, MemoryStore};
use idem_test_servers::{RabbitMq, Redis};
use rabbitmq_worker::queue::Queue;
use rabbitmq_worker::{CONCURRENCY, ship, work};
use tempfile::TempDir;
use tokio::sync::oneshot;
use worker_demo::{Ledger, Order, Shop};

const LEASE: Duration = Duration::from_millis(1_500);

fn order(id: u64) -> Vec<u8> {
    format!("{{\"id\":{id},\"pieces\":1}}").into_bytes()
}

/// A queue, and a shop in this process.
struct Here<'r> {
    rabbit: &'r RabbitMq,
    name: &'static str,
    queue: Queue,
    shop: Shop,
    folder: TempDir,
}

impl<'r> Here<'r> {
    async fn with(rabbit: &'r RabbitMq, name: &'static str, work: Duration) -> Self {
        let queue = Queue::open(&rabbit.url(), name).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::new(DynStore::new(MemoryStore::new()), LEASE, folder.path().to_owned(), work);
        Self { rabbit, name, queue, shop, folder }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        Ledger::new(self.folder.path().to_owned()).read(file).unwrap()
    }

    async fn work(&self) {
        let summary = work(&self.rabbit.url(), self.name, &self.shop, pending()).await;
        panic!("the worker ended: {summary:?}");
    }

    /// Returns once nothing is in the queue, nor with a worker.
    async fn emptied(&self) {
        until("the queue is empty", async || {
            self.queue.waiting().await.unwrap() == 0 && self.rabbit.messages(self.name) == 0
        })
        .await;
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
async fn what_is_delivered_twice_is_shipped_once_and_what_cannot_be_shipped_is_set_aside() {
    let rabbit = RabbitMq::start();
    a_message_that_was_not_acknowledged_comes_again_and_gets_the_recorded_result(&rabbit).await;
    two_workers_that_have_one_order_ship_it_once_and_tell_the_same(&rabbit).await;
    what_can_never_be_handled_is_set_aside_with_its_reason(&rabbit).await;
    a_worker_that_is_shut_down_finishes_what_runs_and_the_rest_is_there_at_once(&rabbit).await;
}

async fn a_message_that_was_not_acknowledged_comes_again_and_gets_the_recorded_result(rabbit: &RabbitMq) {
    let here = Here::with(rabbit, "unacknowledged", Duration::ZERO).await;
    here.queue.send(&order(1)).await.unwrap();
    let lost = Queue::open(&rabbit.url(), here.name).await.unwrap();
    let taken = lost.next().await.unwrap();
    let first = ship(&here.shop, &taken.order().unwrap()).await.unwrap();
    assert_eq!((here.queue.waiting().await.unwrap(), rabbit.messages(here.name)), (0, 1));
    lost.close().await;
    tokio::select! { () = here.work() => {} () = here.emptied() => {} }
    assert_eq!(here.lines("effects"), ["1"]);
    assert_eq!(here.lines("answers"), [format!("1 {} replayed", first.parcel)]);
}

async fn two_workers_that_have_one_order_ship_it_once_and_tell_the_same(rabbit: &RabbitMq) {
    let here = Here::with(rabbit, "twice", Duration::from_millis(300)).await;
    for id in [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9] {
        here.queue.send(&order(id)).await.unwrap();
    }
    tokio::select! { () = here.work() => {} () = here.work() => {} () = here.emptied() => {} }
    assert_eq!(here.lines("effects").len(), 10);
    // Some were in flight when their double came, and waited for their turn elsewhere.
    assert!(here.lines("deliveries").len() > 20);
    let answers = here.lines("answers");
    assert_eq!(answers.len(), 20);
    let mut told: Vec<_> = answers.iter().map(|answer| answer.rsplit_once(' ').unwrap().0).collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told.len(), 10);
}

async fn what_can_never_be_handled_is_set_aside_with_its_reason(rabbit: &RabbitMq) {
    let here = Here::with(rabbit, "poison", Duration::ZERO).await;
    let bodies = [b"no order".to_vec(), b"{\"id\":7,\"pieces\":0}".to_vec(), order(1)];
    for body in &bodies {
        here.queue.send(body).await.unwrap();
    }
    // Recorded already, of other arguments.
    ship(&here.shop, &Order { id: 1, pieces: 2 }).await.unwrap();
    tokio::select! { () = here.work() => {} () = here.emptied() => {} }
    assert_eq!(here.queue.dead_letters().await.unwrap(), 3);
    let mut letters = Vec::new();
    for _ in 0..3 {
        letters.push(here.queue.dead_letter().await.unwrap());
    }
    letters.sort();
    let expected = [("mismatch", &bodies[2]), ("terminal", &bodies[0]), ("terminal", &bodies[1])];
    assert_eq!(letters, expected.map(|(reason, body)| (reason.to_owned(), body.clone())));
}

async fn a_worker_that_is_shut_down_finishes_what_runs_and_the_rest_is_there_at_once(rabbit: &RabbitMq) {
    let here = Here::with(rabbit, "shutdown", Duration::from_millis(500)).await;
    for id in 0..40 {
        here.queue.send(&order(id)).await.unwrap();
    }
    let (end, ended) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = ended.await;
    };
    let (url, running) = (rabbit.url(), usize::from(CONCURRENCY));
    let (summary, ()) = tokio::join!(work(&url, here.name, &here.shop, shutdown), async {
        until("it works", async || here.lines("effects").len() == running).await;
        end.send(()).unwrap();
    });
    assert_eq!((summary.acknowledged, summary.given_back), (running as u64, 0));
    assert_eq!(here.lines("effects").len(), running);
    assert_eq!(here.queue.waiting().await.unwrap(), 30);
}

/// A worker of its own, on the queue `orders`.
struct Process(Child);

impl Process {
    fn start(rabbit: &RabbitMq, store: &str, folder: &Path, work: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rabbitmq-worker"));
        command.arg("worker").args([&rabbit.url(), store]).arg(folder).arg(work.as_millis().to_string());
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
async fn a_worker_that_is_killed_and_a_broker_that_is_lose_no_order_and_no_result() {
    let mut rabbit = RabbitMq::start();
    a_worker_killed_between_effect_and_acknowledgement_is_followed_by_one_that_records_once(&rabbit).await;
    a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(&mut rabbit).await;
}

async fn a_worker_killed_between_effect_and_acknowledgement_is_followed_by_one_that_records_once(
    rabbit: &RabbitMq,
) {
    let (here, redis) = (Here::with(rabbit, "orders", Duration::ZERO).await, Redis::start());
    here.queue.send(&order(1)).await.unwrap();
    let folder = here.folder.path();
    let first = Process::start(rabbit, &redis.url(), folder, Duration::from_secs(600));
    until("the first had the effect", async || here.lines("effects").len() == 1).await;
    drop(first);
    let _second = Process::start(rabbit, &redis.url(), folder, Duration::ZERO);
    here.emptied().await;
    // The effect is not part of the result's commit, so it is there twice. The result is not.
    assert_eq!(here.lines("effects"), ["1", "1"]);
    assert_eq!(here.lines("answers").len(), 1);
}

async fn a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on(rabbit: &mut RabbitMq) {
    let here = Here::with(rabbit, "restart", Duration::from_millis(50)).await;
    for id in 0..200 {
        here.queue.send(&order(id)).await.unwrap();
    }
    let (url, name, shop, folder) = (rabbit.url(), here.name, here.shop.clone(), here.folder);
    let worker = tokio::spawn(async move { work(&url, name, &shop, pending()).await });
    let effects = || Ledger::new(folder.path().to_owned()).read("effects").unwrap();
    until("it works", async || effects().len() > 20).await;
    rabbit.server().kill();
    assert!(effects().len() < 200);
    rabbit.server().restart();
    until("the queue is empty", async || {
        // A broker that was only just restarted may not answer yet.
        let Ok(queue) = Queue::open(&rabbit.url(), name).await else { return false };
        let waiting = queue.waiting().await;
        queue.close().await;
        waiting.is_ok_and(|waiting| waiting == 0) && rabbit.messages(name) == 0
    })
    .await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut effects = effects();
    assert_eq!(effects.len(), 200);
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 200);
}
