//! The worker and a real broker: what is delivered again, to whom, and what comes of it.

use std::future::pending;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use idem::{DynStore, MemoryStore};
use idem_test_servers::{Nats, Postgres, Redis};
use nats_worker::{Queue, ship, work};
use tempfile::TempDir;
use tokio::sync::oneshot;
use worker_demo::{Ledger, Order, Shop};

const LEASE: Duration = Duration::from_millis(1_500);

fn order(id: u64) -> Vec<u8> {
    format!("{{\"id\":{id},\"pieces\":1}}").into_bytes()
}

/// A broker, and a shop in this process.
struct Here {
    nats: Nats,
    queue: Queue,
    shop: Shop,
    folder: TempDir,
}

impl Here {
    async fn with(work: Duration) -> Self {
        let nats = Nats::start();
        let queue = Queue::open(&nats.url()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let shop = Shop::new(DynStore::new(MemoryStore::new()), LEASE, folder.path().to_owned(), work);
        Self { nats, queue, shop, folder }
    }

    fn lines(&self, file: &str) -> Vec<String> {
        lines(self.folder.path(), file)
    }

    /// Works until the queue is empty.
    async fn work_off(&self) {
        tokio::select! {
            ended = work(&self.queue, &self.shop, pending()) => panic!("the worker ended: {ended:?}"),
            () = emptied(&self.queue) => {}
        }
    }
}

fn lines(folder: &Path, file: &str) -> Vec<String> {
    Ledger::new(folder.to_owned()).read(file).unwrap()
}

/// Returns once `condition` holds.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let begin = Instant::now();
    while !condition().await {
        assert!(begin.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn emptied(queue: &Queue) {
    // A broker that is being restarted does not answer.
    until("the queue is empty", async || queue.waiting().await.is_ok_and(|waiting| waiting == 0)).await;
}

#[tokio::test]
async fn a_message_that_was_not_acknowledged_comes_again_and_gets_the_recorded_result() {
    let here = Here::with(Duration::ZERO).await;
    here.queue.send("1", order(1)).await.unwrap();
    let taken = here.queue.next().await.unwrap();
    let first = ship(&here.shop, &taken.order().unwrap()).await.unwrap();
    drop(taken);
    here.work_off().await;
    assert_eq!(here.lines("effects"), ["1"]);
    assert_eq!(here.lines("answers"), [format!("1 {} replayed", first.parcel)]);
}

#[tokio::test]
async fn two_workers_that_have_one_order_ship_it_once_and_tell_the_same() {
    let here = Here::with(Duration::from_millis(300)).await;
    let other = Queue::open(&here.nats.url()).await.unwrap();
    for id in 0..20 {
        for copy in ["a", "b"] {
            here.queue.send(&format!("{id}{copy}"), order(id)).await.unwrap();
        }
    }
    tokio::select! {
        ended = work(&here.queue, &here.shop, pending()) => panic!("the worker ended: {ended:?}"),
        ended = work(&other, &here.shop, pending()) => panic!("the worker ended: {ended:?}"),
        () = emptied(&here.queue) => {}
    }
    assert_eq!(here.lines("effects").len(), 20);
    let mut answers: Vec<_> =
        here.lines("answers").iter().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
    assert_eq!(answers.len(), 40);
    answers.sort();
    answers.dedup();
    assert_eq!(answers.len(), 20);
}

#[tokio::test]
async fn a_message_is_not_given_to_another_while_it_is_worked_at() {
    // Twice as long as the broker waits for a word.
    let here = Here::with(Duration::from_secs(4)).await;
    here.queue.send("1", order(1)).await.unwrap();
    here.work_off().await;
    assert_eq!((here.lines("deliveries").len(), here.lines("effects").len()), (1, 1));
}

#[tokio::test]
async fn what_can_never_be_handled_is_set_aside_with_its_reason() {
    let here = Here::with(Duration::ZERO).await;
    let bodies = [b"no order".to_vec(), b"{\"id\":7,\"pieces\":0}".to_vec(), order(1)];
    for (number, body) in bodies.iter().enumerate() {
        here.queue.send(&number.to_string(), body.clone()).await.unwrap();
    }
    // Recorded already, of other arguments.
    ship(&here.shop, &Order { id: 1, pieces: 2 }).await.unwrap();
    here.work_off().await;
    let mut letters = Vec::new();
    for number in 1..=3 {
        letters.push(here.queue.dead_letter(number).await.unwrap());
    }
    letters.sort();
    let expected = [("mismatch", &bodies[2]), ("terminal", &bodies[0]), ("terminal", &bodies[1])];
    assert_eq!(letters, expected.map(|(reason, body)| (reason.to_owned(), body.clone())));
    assert_eq!(here.queue.dead_letters().await.unwrap(), 3);
}

#[tokio::test]
async fn a_worker_that_is_shut_down_finishes_what_runs_and_gives_back_the_rest_at_once() {
    let here = Here::with(Duration::from_millis(500)).await;
    for id in 0..40 {
        here.queue.send(&id.to_string(), order(id)).await.unwrap();
    }
    let (end, ended) = oneshot::channel::<()>();
    let shutdown = async {
        let _ = ended.await;
    };
    let (summary, ()) = tokio::join!(work(&here.queue, &here.shop, shutdown), async {
        until("it works", async || here.lines("effects").len() == nats_worker::CONCURRENCY).await;
        end.send(()).unwrap();
    });
    let summary = summary.unwrap();
    assert_eq!((summary.acknowledged, summary.given_back), (10, 0));
    assert_eq!(here.lines("effects").len(), 10);
    // Nothing is left with it: all the others are there for whoever asks, without a wait.
    let begin = Instant::now();
    for _ in 0..30 {
        here.queue.next().await.unwrap();
    }
    assert!(begin.elapsed() < Duration::from_millis(1_500), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn a_broker_that_is_restarted_loses_nothing_and_the_worker_goes_on() {
    let mut here = Here::with(Duration::from_millis(50)).await;
    for id in 0..200 {
        here.queue.send(&id.to_string(), order(id)).await.unwrap();
    }
    let (queue, shop) = (here.queue.clone(), here.shop.clone());
    let worker = tokio::spawn(async move { work(&queue, &shop, pending()).await.map(drop) });
    until("it works", async || here.lines("effects").len() > 20).await;
    let server = here.nats.server();
    server.kill();
    server.restart();
    emptied(&here.queue).await;
    assert!(!worker.is_finished());
    worker.abort();
    let mut effects = here.lines("effects");
    assert_eq!(effects.len(), 200);
    effects.sort();
    effects.dedup();
    assert_eq!(effects.len(), 200);
}

/// A worker of its own.
struct Process(Child);

impl Process {
    fn start(nats: &Nats, store: &str, folder: &Path, work: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nats-worker"));
        command.arg("worker").args([&nats.url(), store]).arg(folder).arg(work.as_millis().to_string());
        Self(command.stdin(Stdio::piped()).spawn().unwrap())
    }

    fn signal(&self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_worker_killed_between_effect_and_acknowledgement_is_followed_by_one_that_records_once() {
    let (here, redis) = (Here::with(Duration::ZERO).await, Redis::start());
    here.queue.send("1", order(1)).await.unwrap();
    let folder = here.folder.path();
    let first = Process::start(&here.nats, &redis.url(), folder, Duration::from_secs(600));
    until("the first had the effect", async || here.lines("effects").len() == 1).await;
    drop(first);
    let _second = Process::start(&here.nats, &redis.url(), folder, Duration::ZERO);
    emptied(&here.queue).await;
    // The effect is not part of the result's commit, so it is there twice. The result is not.
    assert_eq!(here.lines("effects"), ["1", "1"]);
    assert_eq!(here.lines("answers").len(), 1);
}

#[tokio::test]
async fn an_effect_in_the_transaction_of_its_result_goes_with_the_worker_that_is_killed() {
    let (here, postgres) = (Here::with(Duration::ZERO).await, Postgres::start());
    here.queue.send("1", order(1)).await.unwrap();
    let folder = here.folder.path();
    let first = Process::start(&here.nats, &postgres.url(), folder, Duration::from_secs(600));
    let open = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%effects%'";
    until("the first had the effect", async || postgres.sql(open) == "1").await;
    drop(first);
    let _second = Process::start(&here.nats, &postgres.url(), folder, Duration::ZERO);
    emptied(&here.queue).await;
    assert_eq!(postgres.sql("SELECT count(*) FROM effects"), "1");
}

#[tokio::test]
async fn a_worker_that_was_stopped_and_goes_on_late_does_not_change_what_its_successor_recorded() {
    let (here, redis) = (Here::with(Duration::ZERO).await, Redis::start());
    here.queue.send("1", order(1)).await.unwrap();
    let folder = here.folder.path();
    let first = Process::start(&here.nats, &redis.url(), folder, Duration::from_secs(6));
    until("the first had the effect", async || here.lines("effects").len() == 1).await;
    first.signal("-STOP");
    let second = Process::start(&here.nats, &redis.url(), folder, Duration::ZERO);
    until("the second has shipped it", async || here.lines("answers").len() == 1).await;
    drop(second);
    let recorded = here.lines("answers")[0].split(' ').nth(1).unwrap().to_owned();
    first.signal("-CONT");
    // Its body is dropped, as the lease is another's; what it is asked again is a replay.
    here.queue.send("2", order(1)).await.unwrap();
    until("the first has answered", async || here.lines("answers").len() >= 2).await;
    emptied(&here.queue).await;
    for answer in here.lines("answers").iter().skip(1) {
        assert_eq!(*answer, format!("1 {recorded} replayed"));
    }
    assert_eq!(here.lines("effects").len(), 2);
}
