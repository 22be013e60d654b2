//! Tests that concurrent histories on real stores, with lost and late answers, are linearizable: one record that takes
//! one operation after another could have given them.
//!
//! Each history is recorded from the outside and then checked by stateright's linearizability tester, whose sequential
//! object runs the shipped protocol. An operation with an unknown outcome stays open: it may take effect at any later
//! time, or never. An operation that was certainly not applied is left out.

mod stores;
mod violations;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Fingerprint, OnCrash, Owner, Record,
    RecordStep, RecordStepAnswer, RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer,
    State, StoredResult, Timestamp, Verdict,
};
use idem::testing::{FaultStore, Rates};
use idem::{Key, RecordKey, Scope, Store, StoreError, StoreErrorKind};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};

/// No lease ends and nothing expires during a history, so time has no effect.
const LONG: Duration = Duration::from_secs(3_600);
/// Few, because the search for an order is exponential in the number of overlapping operations.
const CLIENTS: u64 = 3;
const OPERATIONS: u32 = 4;

const CAUSES: [ReleaseCause; 5] = [
    ReleaseCause::Failed,
    ReleaseCause::Abandoned,
    ReleaseCause::Doubtful,
    ReleaseCause::Unused,
    ReleaseCause::NothingHappened,
];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Granted {
    owner: u32,
    attempt: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    /// By a caller that can find out what an earlier run did.
    Claim {
        owner: u32,
        fingerprint: u8,
        on_crash: OnCrash,
    },
    Renew(Granted),
    /// Under this claim, at this position, with this value.
    Step(Granted, u32, u32),
    Complete(Granted, u32),
    Release(Granted, ReleaseCause),
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
struct OneKey {
    record: Option<Record>,
    /// Real stores take fences from their clocks, so a history identifies a grant by owner and attempt.
    grants: Vec<(Granted, Fence)>,
}

const NOW: Timestamp = Timestamp::from_micros(1_000);

impl OneKey {
    fn fence(&self, granted: Granted) -> Fence {
        let grant = self.grants.iter().find(|(known, _)| *known == granted);
        grant.map_or(Fence::default(), |(_, fence)| *fence)
    }

    fn step<A>(&mut self, step: protocol::Transition<A>) -> A {
        if let Some(record) = &step.write {
            assert_eq!(protocol::is_endless(record), record.expires_at.is_none());
            self.record = step.write;
        }
        step.answer
    }
}

impl SequentialSpec for OneKey {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        match *op {
            Op::Claim { owner, fingerprint, on_crash } => {
                let request = claim(owner, fingerprint, on_crash);
                let step = protocol::claim(self.record.as_ref(), Fence::default(), &request, NOW);
                let answer = self.step(step);
                if let ClaimAnswer::Granted(grant) = &answer {
                    self.grants.push((Granted { owner, attempt: grant.attempt }, grant.fence));
                }
                claimed(&answer)
            }
            Op::Renew(granted) => {
                let request = renew(granted, self.fence(granted));
                Ret::Renewed(self.step(protocol::renew(self.record.as_ref(), &request, NOW)))
            }
            Op::Step(granted, position, value) => {
                let request = record_step(granted, self.fence(granted), position, value);
                Ret::Recorded(self.step(protocol::record_step(self.record.as_ref(), &request, NOW)))
            }
            Op::Complete(granted, value) => {
                let request = complete(granted, self.fence(granted), value);
                Ret::Completed(self.step(protocol::complete(self.record.as_ref(), &request, NOW)))
            }
            Op::Release(granted, cause) => {
                let request = release(granted, self.fence(granted), cause);
                Ret::Released(self.step(protocol::release(self.record.as_ref(), &request, NOW)))
            }
            Op::Get => found(self.record.as_ref()),
        }
    }
}

fn owner(number: u32) -> Owner {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[15] = 1;
    Owner::from_bytes(bytes)
}

fn claim(number: u32, fingerprint: u8, on_crash: OnCrash) -> Claim {
    Claim::new(owner(number), LONG, LONG)
        .with_fingerprint(Some(Fingerprint::from_bytes([fingerprint; 32])))
        .with_on_crash(on_crash)
        .with_recovers(true)
}

fn renew(granted: Granted, fence: Fence) -> Renew {
    Renew::new(owner(granted.owner), fence, LONG)
}

fn record_step(granted: Granted, fence: Fence, position: u32, value: u32) -> RecordStep {
    let result = StoredResult::Value(value.to_be_bytes().to_vec().into());
    let step = RecordedStep::new(format!("{value}"), None, result);
    RecordStep::new(owner(granted.owner), fence, position, step)
}

fn complete(granted: Granted, fence: Fence, value: u32) -> Complete {
    let result = StoredResult::Value(value.to_be_bytes().to_vec().into());
    Complete::new(owner(granted.owner), fence, Verdict::Completed, result, LONG)
}

fn release(granted: Granted, fence: Fence, cause: ReleaseCause) -> Release {
    Release::new(owner(granted.owner), fence, cause)
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

/// An event that was seen from the outside, in order.
#[derive(Debug)]
enum Event {
    Invoke(usize, Op),
    Return(usize, Ret),
    /// The operation was certainly not applied.
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
            // Each operation is a thread of its own, so only invocations and returns determine the order.
            match event {
                Event::Invoke(id, op) if !is_left_out(id) => drop(tester.on_invoke(*id, *op).unwrap()),
                Event::Return(id, ret) => drop(tester.on_return(*id, ret.clone()).unwrap()),
                Event::Invoke(..) | Event::Never(_) => {}
            }
        }
        tester.is_consistent()
    }
}

/// One client: claims, renews, completes and releases, sometimes with a claim that it no longer holds.
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
            // Few positions and values, so that several clients record the same step.
            (10..=12, Some((granted, _))) => {
                Op::Step(granted, random.random_range(0..3), random.random_range(0..2))
            }
            (1, Some((granted, _))) => Op::Renew(granted),
            (2..=5, Some((granted, _))) => Op::Complete(granted, random.random_range(0..1_000)),
            (6..=8, Some((granted, _))) => Op::Release(granted, CAUSES[random.random_range(0..CAUSES.len())]),
            // Half of the claims repeat one whose answer may have been lost.
            _ => {
                owner_number += u32::from(random.random_bool(0.5));
                let fingerprint = u8::from(random.random_bool(0.1));
                let on_crash = if random.random_bool(0.3) { OnCrash::InDoubt } else { OnCrash::Rerun };
                Op::Claim { owner: owner_number, fingerprint, on_crash }
            }
        };
        let fence = granted.map_or(Fence::default(), |(_, fence)| fence);
        let id = history.invoke(op);
        let outcome = match op {
            Op::Claim { owner, fingerprint, on_crash } => {
                let answer = store.claim(&key, &claim(owner, fingerprint, on_crash)).await;
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
            Op::Release(granted, cause) => {
                store.release(&key, &release(granted, fence, cause)).await.map(Ret::Released)
            }
            Op::Get => store.get(&key).await.map(|record| found(record.as_ref())),
        };
        history.end(id, outcome);
    }
}

/// Runs many short histories, each on a key of its own, and stops at the first that no order explains.
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
