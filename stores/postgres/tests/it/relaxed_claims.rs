//! Relaxed claims, and a server that is killed before it has written them: what is lost, and what each party gets.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use idem_macros::idempotent;
use idem_postgres::PostgresStore;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Durability, Grant, OnCrash, Owner, Renew, RenewAnswer,
    State, StoredResult, Verdict,
};
use idem_runtime::{Error, Key, Loss, Operation, Outcome, RecordKey, Scope, Store, observe};
use idem_test_servers::{PgBouncer, Postgres};
use tokio::sync::Notify;

use crate::support::builder;

const HOUR: Duration = Duration::from_secs(3_600);

/// A server that writes its log only where a commit waits for that: the process that would write it later is stopped.
struct Crashing {
    server: Postgres,
    log_writer: Option<String>,
}

impl Crashing {
    fn start() -> Self {
        // Nothing else commits, or writes so much that a page of the log is full.
        let quiet =
            ["fsync=off", "full_page_writes=off", "autovacuum=off", "wal_level=minimal", "max_wal_senders=0"];
        let settings: Vec<_> = quiet.into_iter().chain(["wal_writer_delay=10s"]).collect();
        Self { server: Postgres::with(&settings), log_writer: None }
    }

    async fn store(&self) -> PostgresStore {
        builder(&self.server.url()).connect().await.unwrap()
    }

    /// From now on, what is committed without waiting stays in the server's memory.
    fn hold(&mut self) {
        let find = "select pid from pg_stat_activity where backend_type = 'walwriter'";
        let writer = self.server.sql(find);
        assert!(kill("-STOP", &writer), "the writer of the log runs");
        self.log_writer = Some(writer);
    }

    /// How far the log is written: a commit that waits for the disk moves it.
    fn written(&self) -> String {
        self.server.sql("select pg_current_wal_flush_lsn()")
    }

    /// `kill -9`, and a new start.
    fn crash(&mut self) {
        self.server.server().kill();
        self.end_log_writer();
        self.server.restart();
    }

    /// A process that is stopped does not notice that its server is gone.
    fn end_log_writer(&mut self) {
        if let Some(writer) = self.log_writer.take() {
            kill("-KILL", &writer);
        }
    }
}

impl Drop for Crashing {
    fn drop(&mut self) {
        self.end_log_writer();
    }
}

fn kill(signal: &str, process: &str) -> bool {
    Command::new("kill").args([signal, process]).status().unwrap().success()
}

fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("relaxed claims").unwrap(), Key::new(name).unwrap())
}

fn claim(durability: Durability) -> Claim {
    Claim::new(Owner::random(), HOUR, HOUR).with_durability(durability)
}

fn relaxed() -> Claim {
    claim(Durability::Relaxed)
}

async fn grant(store: &PostgresStore, name: &str, request: &Claim) -> Grant {
    match store.claim(&key(name), request).await.unwrap() {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

fn completion(owner: Owner, grant: Grant) -> Complete {
    let result = StoredResult::Value("1".into());
    Complete::new(owner, grant.fence, Verdict::Completed, result, HOUR)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relaxed_claim_is_lost_with_its_server_and_a_full_one_is_kept() {
    let mut server = Crashing::start();
    let store = server.store().await;
    server.hold();
    let (full, lost) = (claim(Durability::Full), relaxed());
    let kept = grant(&store, "full", &full).await;
    let held = grant(&store, "relaxed", &lost).await;
    assert!(matches!(store.claim(&key("relaxed"), &relaxed()).await.unwrap(), ClaimAnswer::Busy { .. }));
    server.crash();
    let busy = store.claim(&key("full"), &claim(Durability::Full)).await.unwrap();
    assert!(matches!(busy, ClaimAnswer::Busy { .. }), "{busy:?}");
    assert_eq!(
        store.complete(&key("full"), &completion(full.owner, kept)).await.unwrap(),
        CompleteAnswer::Done
    );

    assert_eq!(store.get(&key("relaxed")).await.unwrap(), None);
    let renewal = Renew::new(lost.owner, held.fence, HOUR);
    assert_eq!(store.renew(&key("relaxed"), &renewal).await.unwrap(), RenewAnswer::Lost);
    let late = completion(lost.owner, held);
    assert_eq!(store.complete(&key("relaxed"), &late).await.unwrap(), CompleteAnswer::Lost);
    let next = grant(&store, "relaxed", &relaxed()).await;
    assert!(next.fence > held.fence, "{next:?} after {held:?}");
    assert_eq!((next.attempt, next.recovered), (1, false));
    assert_eq!(store.complete(&key("relaxed"), &late).await.unwrap(), CompleteAnswer::Lost);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_acknowledged_later_makes_a_relaxed_claim_durable() {
    let mut server = Crashing::start();
    let store = server.store().await;
    server.hold();
    let (renewed, completed) = (relaxed(), relaxed());
    let held = grant(&store, "completed", &completed).await;
    let done = store.complete(&key("completed"), &completion(completed.owner, held)).await;
    assert_eq!(done.unwrap(), CompleteAnswer::Done);
    server.crash();
    let replay = store.claim(&key("completed"), &relaxed()).await.unwrap();
    assert!(matches!(replay, ClaimAnswer::Replay(_)), "{replay:?}");

    server.hold();
    let held = grant(&store, "renewed", &renewed).await;
    let renewal = Renew::new(renewed.owner, held.fence, HOUR);
    assert_eq!(store.renew(&key("renewed"), &renewal).await.unwrap(), RenewAnswer::Held);
    server.crash();
    assert_eq!(store.renew(&key("renewed"), &renewal).await.unwrap(), RenewAnswer::Held);

    server.hold();
    grant(&store, "beside another", &relaxed()).await;
    grant(&store, "full", &claim(Durability::Full)).await;
    server.crash();
    assert!(store.get(&key("beside another")).await.unwrap().is_some());
}

#[tokio::test]
async fn a_relaxed_claim_that_travels_with_a_full_one_waits_for_the_disk() {
    let mut server = Crashing::start();
    let store = builder(&server.server.url()).connections(1).connect().await.unwrap();
    server.hold();
    let before = server.written();
    let (one, other) = (relaxed(), claim(Durability::Full));
    let (one_key, other_key) = (key("one"), key("other"));
    // In one runtime with one thread, both wait when the worker begins.
    let granted = tokio::join!(store.claim(&one_key, &one), store.claim(&other_key, &other));
    assert!(matches!(granted, (Ok(ClaimAnswer::Granted(_)), Ok(ClaimAnswer::Granted(_)))), "{granted:?}");
    assert_ne!(server.written(), before);
    server.crash();
    assert!(store.get(&one_key).await.unwrap().is_some());
    assert!(store.get(&other_key).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relaxed_takeover_waits_for_the_disk() {
    let mut server = Crashing::start();
    let store = server.store().await;
    grant(&store, "lapsed", &claim(Durability::Full).with_lease(Duration::from_millis(1))).await;
    server.hold();
    let request = relaxed();
    let granted = loop {
        match store.claim(&key("lapsed"), &request).await.unwrap() {
            ClaimAnswer::Busy { .. } => {}
            other => break other,
        }
    };
    assert!(
        matches!(granted, ClaimAnswer::Granted(Grant { attempt: 2, recovered: true, .. })),
        "{granted:?}"
    );
    server.crash();
    let record = store.get(&key("lapsed")).await.unwrap().unwrap();
    assert_eq!((record.state, record.owner, record.attempt), (State::InFlight, request.owner, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_depends_on_a_record_of_each_start_waits_for_the_disk() {
    let mut server = Crashing::start();
    let store = server.store().await;
    server.hold();
    let careful = [
        relaxed().with_on_crash(OnCrash::InDoubt),
        relaxed().with_max_attempts(std::num::NonZeroU32::new(3)),
        relaxed().with_recovers(true),
    ];
    for (number, request) in careful.iter().enumerate() {
        let before = server.written();
        grant(&store, &number.to_string(), request).await;
        assert_ne!(server.written(), before, "{request:?}");
    }
    let before = server.written();
    grant(&store, "relaxed", &relaxed()).await;
    assert_eq!(server.written(), before);
}

/// Where a process has recorded in a caller's transaction, claims are granted by another statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_relaxed_claim_does_not_wait_beside_transactions_of_callers() {
    let mut server = Crashing::start();
    let store = server.store().await;
    let meta = server.server.sql("select tablename from pg_tables where tablename like 'records%meta'");
    let _ = server.server.sql(&format!(
        "insert into {meta} (name, value) values ('transactions', 1) on conflict (name) do update set value = 1"
    ));
    server.hold();
    let before = server.written();
    grant(&store, "full", &claim(Durability::Full)).await;
    let after = server.written();
    assert_ne!(after, before);
    let request = relaxed();
    grant(&store, "relaxed", &request).await;
    // Asked again, the same owner is granted the same.
    grant(&store, "relaxed", &request).await;
    assert_eq!(server.written(), after);
    let lapsing = relaxed().with_lease(Duration::from_millis(1));
    grant(&store, "lapsing", &lapsing).await;
    assert_eq!(server.written(), after);
    while matches!(store.claim(&key("lapsing"), &relaxed()).await.unwrap(), ClaimAnswer::Busy { .. }) {}
    assert_ne!(server.written(), after, "a takeover waits");
}

#[tokio::test(flavor = "multi_thread")]
async fn through_a_pooler_no_session_stays_relaxed() {
    let mut server = Crashing::start();
    // All clients share one session of the server.
    let pooler = PgBouncer::start(&mut server.server, "transaction", "default_pool_size=1");
    let store = builder(&pooler.url()).connect().await.unwrap();
    server.hold();
    let before = server.written();
    grant(&store, "relaxed", &relaxed()).await;
    assert_eq!(server.written(), before);
    grant(&store, "full", &claim(Durability::Full)).await;
    assert_ne!(server.written(), before);
}

/// Two callers of one operation, of which the first is in its body when the server crashes and loses its claim.
struct Pair {
    server: Crashing,
    store: PostgresStore,
    operation: Operation,
    bodies: Arc<AtomicU32>,
}

/// What a caller got, and what its call did.
type Told = (Result<u32, Error>, Option<Outcome>);

impl Pair {
    async fn open(operation: Operation) -> Self {
        let server = Crashing::start();
        let store = server.store().await;
        let operation = operation.claim_durability(Durability::Relaxed);
        Self { server, store, operation, bodies: Arc::default() }
    }

    /// Makes a call whose body tells when it begins, and ends when it may. Its value is the number of the body.
    fn call(&self) -> (tokio::task::JoinHandle<Told>, Arc<Notify>, Arc<Notify>) {
        let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (store, operation, bodies) = (self.store.clone(), self.operation.clone(), self.bodies.clone());
        let (begins, ends) = (begun.clone(), may_end.clone());
        let call = tokio::spawn(async move {
            let called = operation.run(&store, "order", || async move {
                let number = bodies.fetch_add(1, Ordering::SeqCst) + 1;
                begins.notify_one();
                ends.notified().await;
                Ok::<_, Error>(number)
            });
            let observed = observe(called).await;
            (observed.value, observed.outcome)
        });
        (call, begun, may_end)
    }

    /// The first call, in its body, after the crash that lost its claim.
    async fn lose(&mut self) -> (tokio::task::JoinHandle<Told>, Arc<Notify>) {
        self.server.hold();
        let (call, begun, may_end) = self.call();
        begun.notified().await;
        self.server.crash();
        let key = self.operation.record_key("order").unwrap();
        assert_eq!(self.store.get(&key).await.unwrap(), None, "the claim is lost");
        (call, may_end)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_whose_claim_is_lost_keeps_its_value_and_the_next_caller_runs() {
    let mut pair = Pair::open(Operation::new("alone").lease(HOUR)).await;
    let (first, may_end) = pair.lose().await;
    may_end.notify_one();
    let (value, outcome) = first.await.unwrap();
    assert_eq!(value.unwrap(), 1);
    assert!(matches!(outcome, Some(Outcome::Unrecorded { attempt: 1, .. })), "{outcome:?}");

    let (second, _, may_end) = pair.call();
    may_end.notify_one();
    let (value, outcome) = second.await.unwrap();
    assert_eq!(value.unwrap(), 2);
    let executed = matches!(outcome, Some(Outcome::Executed { attempt: 1, recovered: false, .. }));
    assert!(executed, "no record says that a body began before: {outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_bodies_beside_each_other_the_recorded_result_is_everybodys() {
    let mut pair = Pair::open(Operation::new("beside").lease(HOUR)).await;
    let (first, may_end_first) = pair.lose().await;
    let (second, begun, may_end) = pair.call();
    begun.notified().await;
    may_end.notify_one();
    assert_eq!(second.await.unwrap().0.unwrap(), 2);
    may_end_first.notify_one();
    let (value, outcome) = first.await.unwrap();
    assert_eq!(value.unwrap(), 2, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_ends_while_another_runs_has_lost_its_claim() {
    let mut pair = Pair::open(Operation::new("overtaken").lease(HOUR)).await;
    let (first, may_end_first) = pair.lose().await;
    let (second, begun, may_end) = pair.call();
    begun.notified().await;
    may_end_first.notify_one();
    let told = first.await.unwrap().0;
    assert!(matches!(told, Err(Error::LeaseLost { loss: Loss::TakenOver, .. })), "{told:?}");
    may_end.notify_one();
    assert_eq!(second.await.unwrap().0.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_finds_that_the_claim_is_lost_and_ends_the_body() {
    // Long enough to be granted and lost before its first renewal, after a third of it.
    let mut pair = Pair::open(Operation::new("renewing").lease(Duration::from_secs(9))).await;
    let (first, _) = pair.lose().await;
    let told = first.await.unwrap().0;
    assert!(matches!(told, Err(Error::LeaseLost { loss: Loss::Forgotten, .. })), "{told:?}");
}

#[idempotent(key = "{id}", claim_durability = "relaxed", store = store, crate = ::idem_runtime)]
async fn thumbnail(store: &PostgresStore, id: u32, server: &Crashing) -> Result<String, Error> {
    Ok(server.written())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_attribute_asks_for_relaxed_claims() {
    let mut server = Crashing::start();
    let store = server.store().await;
    server.hold();
    let before = server.written();
    assert_eq!(thumbnail(&store, 7, &server).await.unwrap(), before);
    assert_ne!(server.written(), before, "the result waits for the disk");
}
