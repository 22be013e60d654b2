//! Concurrent histories on real stores, with answers lost and late, are those of one record that
//! takes one operation after another.
//!
//! Each history is recorded from the outside and then put to stateright's linearizability tester,
//! whose sequential object runs the shipped protocol. An operation with an unknown outcome stays
//! open: it may take effect at any later time, or never. One that certainly was not applied is left
//! out.

#![cfg(all(feature = "testing", feature = "sqlite"))]

#[cfg(feature = "dynamodb")]
mod dynamodb_support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_runtime::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Fingerprint, Owner, Record, RecordStep,
    RecordStepAnswer, RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution,
    ResolveAnswer, State, StoredResult, Timestamp, Verdict,
};
use idem_runtime::testing::{FaultStore, Rates};
use idem_runtime::{
    Key, MemoryStore, OnCrash, RecordKey, Scope, SqliteStore, Store, StoreError, StoreErrorKind, Waiters,
};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

/// No lease ends and nothing expires within a history, so that time decides nothing.
const LONG: Duration = Duration::from_secs(3_600);
/// Small, because the search for an order is exponential in the operations that overlap.
const CLIENTS: u64 = 3;
const OPERATIONS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Granted {
    owner: u32,
    attempt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Claim {
        owner: u32,
        fingerprint: u8,
    },
    Renew(Granted),
    /// At this position, with this value.
    Step(Granted, u32, u32),
    Complete(Granted, u32),
    Release(Granted),
    Get,
}

#[derive(Clone, Debug, PartialEq)]
enum Ret {
    Granted { attempt: u32, recovered: bool },
    Busy,
    Replay { attempt: u32, value: u32 },
    Mismatch,
    Renewed(RenewAnswer),
    Recorded(RecordStepAnswer),
    Completed(CompleteAnswer),
    Released(ReleaseAnswer),
    Found(Option<(State, u32, Option<u32>, Vec<u32>)>),
    Other(String),
}

/// One record that takes one operation after another.
#[derive(Clone, Debug, Default)]
struct OneKey(Option<Record>);

const NOW: Timestamp = Timestamp::from_micros(1_000);

impl OneKey {
    /// The fence of a grant: fences of real stores come from their clocks, so a history knows a
    /// grant by owner and attempt.
    fn fence(&self, granted: Granted) -> Fence {
        let is_it =
            |record: &&Record| record.owner == owner(granted.owner) && record.attempt == granted.attempt;
        self.0.as_ref().filter(is_it).map_or(Fence::default(), |record| record.fence)
    }

    fn step<A>(&mut self, step: protocol::Step<A>) -> A {
        if step.write.is_some() {
            self.0 = step.write;
        }
        step.answer
    }
}

impl SequentialSpec for OneKey {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        match *op {
            Op::Claim { owner, fingerprint } => {
                let request = claim(owner, fingerprint);
                let step = protocol::claim(self.0.as_ref(), Fence::default(), &request, NOW);
                claimed(&self.step(step))
            }
            Op::Renew(granted) => {
                let request = renew(granted, self.fence(granted));
                Ret::Renewed(self.step(protocol::renew(self.0.as_ref(), &request, NOW)))
            }
            Op::Step(granted, position, value) => {
                let request = record_step(granted, self.fence(granted), position, value);
                Ret::Recorded(self.step(protocol::record_step(self.0.as_ref(), &request, NOW)))
            }
            Op::Complete(granted, value) => {
                let request = complete(granted, self.fence(granted), value);
                Ret::Completed(self.step(protocol::complete(self.0.as_ref(), &request, NOW)))
            }
            Op::Release(granted) => {
                let request = release(granted, self.fence(granted));
                Ret::Released(self.step(protocol::release(self.0.as_ref(), &request, NOW)))
            }
            Op::Get => found(self.0.as_ref()),
        }
    }
}

fn owner(number: u32) -> Owner {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[15] = 1;
    Owner::from_bytes(bytes)
}

fn claim(number: u32, fingerprint: u8) -> Claim {
    Claim {
        owner: owner(number),
        fingerprint: Some(Fingerprint::from_bytes([fingerprint; 32])),
        lease: LONG,
        ttl: LONG,
        on_crash: OnCrash::Rerun,
        max_attempts: None,
        settles_doubt: false,
    }
}

fn renew(granted: Granted, fence: Fence) -> Renew {
    Renew { owner: owner(granted.owner), fence, lease: LONG }
}

fn record_step(granted: Granted, fence: Fence, position: u32, value: u32) -> RecordStep {
    let result = StoredResult::Value(value.to_be_bytes().to_vec().into());
    let step = RecordedStep { name: format!("{value}"), input: None, result };
    RecordStep { owner: owner(granted.owner), fence, position, step }
}

fn complete(granted: Granted, fence: Fence, value: u32) -> Complete {
    let result = StoredResult::Value(value.to_be_bytes().to_vec().into());
    Complete { owner: owner(granted.owner), fence, verdict: Verdict::Completed, result, ttl: LONG }
}

fn release(granted: Granted, fence: Fence) -> Release {
    let cause = ReleaseCause::Failed;
    Release { owner: owner(granted.owner), fence, cause, retry_after: Duration::ZERO }
}

fn value(result: &StoredResult) -> u32 {
    match result {
        StoredResult::Value(bytes) => u32::from_be_bytes(bytes.as_ref().try_into().unwrap()),
        StoredResult::Tombstone(reason) => panic!("a tombstone for {reason:?}"),
    }
}

fn claimed(answer: &ClaimAnswer) -> Ret {
    match answer {
        ClaimAnswer::Granted(grant) => Ret::Granted { attempt: grant.attempt, recovered: grant.recovered },
        ClaimAnswer::Busy { .. } => Ret::Busy,
        ClaimAnswer::Replay(replay) => Ret::Replay { attempt: replay.attempt, value: value(&replay.result) },
        ClaimAnswer::Mismatch => Ret::Mismatch,
        other => Ret::Other(format!("{other:?}")),
    }
}

fn found(record: Option<&Record>) -> Ret {
    Ret::Found(record.map(|record| {
        let steps = record.steps.iter().map(|step| value(&step.result)).collect();
        (record.state, record.attempt, record.result.as_ref().map(value), steps)
    }))
}

/// What was seen from the outside, in order.
#[derive(Debug)]
enum Event {
    Invoke(usize, Op),
    Return(usize, Ret),
    /// It certainly was not applied.
    Never(usize),
}

#[derive(Default)]
struct History(Mutex<Vec<Event>>);

impl History {
    fn invoke(&self, op: Op) -> usize {
        let mut events = self.0.lock().unwrap();
        let id = events.len();
        events.push(Event::Invoke(id, op));
        id
    }

    fn end(&self, id: usize, outcome: Result<Ret, StoreError>) {
        let event = match outcome {
            Ok(ret) => Event::Return(id, ret),
            Err(error) if error.kind() == StoreErrorKind::Unavailable => Event::Never(id),
            Err(error) if error.is_outcome_unknown() => return,
            Err(error) => panic!("{error}"),
        };
        self.0.lock().unwrap().push(event);
    }

    /// Whether there is an order of the operations that explains all answers.
    fn is_linearizable(&self) -> bool {
        let events = self.0.lock().unwrap();
        let is_left_out =
            |id: &usize| events.iter().any(|event| matches!(event, Event::Never(never) if never == id));
        let mut tester = LinearizabilityTester::new(OneKey::default());
        for event in events.iter() {
            // Each operation is a thread of its own: the order is that of invocations and returns.
            match event {
                Event::Invoke(id, op) if !is_left_out(id) => drop(tester.on_invoke(*id, *op).unwrap()),
                Event::Return(id, ret) => drop(tester.on_return(*id, ret.clone()).unwrap()),
                Event::Invoke(..) | Event::Never(_) => {}
            }
        }
        tester.is_consistent()
    }
}

/// One client: claims, renews, completes and releases, now and then with a claim it has no more.
async fn client<S: Store>(
    store: FaultStore<S>,
    key: RecordKey,
    history: Arc<History>,
    seed: u64,
    number: u64,
) {
    let mut random = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9));
    let mut grants: Vec<(Granted, Fence)> = Vec::new();
    let mut owner_number = u32::try_from(number).unwrap() * 1_000;
    for _ in 0..OPERATIONS {
        let granted = grants.get(random.random_range(0..=grants.len())).copied();
        let op = match (random.random_range(0..13), granted) {
            (0, _) => Op::Get,
            // Few positions and values, so that the same step is asked for by several.
            (10..=12, Some((granted, _))) => {
                Op::Step(granted, random.random_range(0..3), random.random_range(0..2))
            }
            (1, Some((granted, _))) => Op::Renew(granted),
            (2..=5, Some((granted, _))) => Op::Complete(granted, random.random_range(0..1_000)),
            (6..=8, Some((granted, _))) => Op::Release(granted),
            // Half of the claims ask again for an answer that may have been lost.
            _ => {
                owner_number += u32::from(random.random_bool(0.5));
                Op::Claim { owner: owner_number, fingerprint: u8::from(random.random_bool(0.1)) }
            }
        };
        let fence = granted.map_or(Fence::default(), |(_, fence)| fence);
        let id = history.invoke(op);
        let outcome = match op {
            Op::Claim { owner, fingerprint } => {
                let answer = store.claim(&key, &claim(owner, fingerprint)).await;
                if let Ok(ClaimAnswer::Granted(grant)) = &answer {
                    grants.push((Granted { owner, attempt: grant.attempt }, grant.fence));
                }
                answer.map(|answer| claimed(&answer))
            }
            Op::Renew(granted) => store.renew(&key, &renew(granted, fence)).await.map(Ret::Renewed),
            Op::Step(granted, position, value) => {
                let request = record_step(granted, fence, position, value);
                store.record_step(&key, &request).await.map(Ret::Recorded)
            }
            Op::Complete(granted, value) => {
                store.complete(&key, &complete(granted, fence, value)).await.map(Ret::Completed)
            }
            Op::Release(granted) => store.release(&key, &release(granted, fence)).await.map(Ret::Released),
            Op::Get => store.get(&key).await.map(|record| found(record.as_ref())),
        };
        history.end(id, outcome);
    }
}

/// Runs many short histories, each on a key of its own, until one that no order explains.
async fn violation<S: Store>(store: S, histories: u64, seed: u64) -> Option<(u64, Arc<History>)> {
    let rates = Rates::none()
        .fail_before(0.05)
        .fail_after(0.08)
        .apply_late(0.04)
        .delay(0.3, Duration::from_millis(2));
    for number in 0..histories {
        let seed = seed.wrapping_add(number);
        let faulty = FaultStore::seeded(store.clone(), seed, rates);
        let key =
            RecordKey::new(Scope::new("linearizability").unwrap(), Key::new(format!("{number}")).unwrap());
        let history = Arc::new(History::default());
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client_number| {
                tokio::spawn(client(faulty.clone(), key.clone(), history.clone(), seed, client_number))
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
        if !history.is_linearizable() {
            return Some((seed, history));
        }
    }
    None
}

fn seed() -> u64 {
    let given = std::env::var("IDEM_SEED").ok().map(|seed| seed.parse().expect("IDEM_SEED is a number"));
    let seed = given.unwrap_or_else(rand::random);
    println!("IDEM_SEED={seed}");
    seed
}

/// How many histories; `IDEM_HISTORIES` asks for more.
fn histories(usual: u64) -> u64 {
    let given = std::env::var("IDEM_HISTORIES").ok();
    given.map_or(usual, |histories| histories.parse().expect("IDEM_HISTORIES is a number"))
}

fn assert_none(broken: Option<(u64, Arc<History>)>) {
    if let Some((seed, history)) = broken {
        panic!("with seed {seed}, this history is not linearizable: {:#?}", history.0.lock().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_memory_store_are_linearizable() {
    assert_none(violation(MemoryStore::new(), histories(300), seed()).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_sqlite_store_are_linearizable() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    assert_none(violation(store, histories(150), seed()).await);
}

#[cfg(feature = "dynamodb")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_dynamodb_store_are_linearizable() {
    let aws = idem_test_servers::Aws::start();
    let client = dynamodb_support::client(&aws);
    let store = idem_runtime::DynamoDbStore::builder(client, "records").clock_skew(Duration::ZERO).build();
    store.create_table().await.unwrap();
    assert_none(violation(store, histories(60), seed()).await);
}

#[cfg(feature = "redis")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_redis_store_are_linearizable() {
    let redis = idem_test_servers::Redis::start();
    let store = idem_runtime::RedisStore::connect(redis.url()).await.unwrap();
    assert_none(violation(store, histories(300), seed()).await);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_on_the_postgres_store_are_linearizable() {
    let server = idem_test_servers::Postgres::start();
    let store = idem_runtime::PostgresStore::connect(&server.url()).await.unwrap();
    assert_none(violation(store, histories(150), seed()).await);
}

/// A store whose claim looks first and writes later.
#[derive(Clone)]
struct GetThenSet(MemoryStore);

impl Store for GetThenSet {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        if self.0.get(key).await?.is_none() {
            tokio::task::yield_now().await;
            self.0.forget(key).await?;
        }
        self.0.claim(key, request).await
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        self.0.renew(key, request).await
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.0.record_step(key, request).await
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.0.complete(key, request).await
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        self.0.release(key, request).await
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        self.0.resolve(key, resolution).await
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.0.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        self.0.purge(limit).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        self.0.max_result_bytes()
    }

    fn waiters(&self) -> &Waiters {
        self.0.waiters()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_in_two_steps_is_found_out() {
    assert!(violation(GetThenSet(MemoryStore::new()), 400, 1).await.is_some());
}

/// A store that answers before it has written.
#[test]
fn a_lost_write_is_found_out() {
    let history = History::default();
    let granted = Granted { owner: 1, attempt: 1 };
    for (op, ret) in [
        (Op::Claim { owner: 1, fingerprint: 0 }, Ret::Granted { attempt: 1, recovered: false }),
        (Op::Complete(granted, 7), Ret::Completed(CompleteAnswer::Done)),
        (Op::Claim { owner: 2, fingerprint: 0 }, Ret::Busy),
    ] {
        let id = history.invoke(op);
        history.end(id, Ok(ret));
    }
    assert!(!history.is_linearizable());
}
