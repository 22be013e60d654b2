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
    self, Answer, Claim, ClaimAnswer, Complete, Fence, Fingerprint, OnCrash, Owner, Record, RecordStep,
    RecordedStep, Release, ReleaseCause, Renew, Request, State, StoredResult, Timestamp, Verdict,
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
    Granted {
        attempt: u32,
        recovered: bool,
    },
    Busy,
    Replay {
        attempt: u32,
        value: u32,
    },
    /// Any other answer; none has a time or a fence.
    Other(Answer),
    Found(Option<(State, u32, Option<u32>, Vec<u32>)>),
}

/// One record that takes one operation after another.
#[derive(Clone, Debug, Default)]
struct OneKey {
    record: Option<Record>,
    /// Real stores take fences from their clocks, so a history identifies a grant by owner and attempt.
    grants: Vec<(Granted, Fence)>,
}

const NOW: Timestamp = Timestamp::from_micros(1_000);

impl SequentialSpec for OneKey {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        let Some(granted) = op.granted() else { return found(self.record.as_ref()) };
        let known = self.grants.iter().find(|(known, _)| *known == granted);
        let request = request(*op, known.map_or(Fence::default(), |(_, fence)| *fence));
        let step = protocol::apply(self.record.as_ref(), Fence::default(), &request, NOW);
        if let Some(record) = &step.write {
            assert_eq!(protocol::is_endless(record), record.expires_at.is_none());
            self.record = step.write;
        }
        if let Answer::Claim(ClaimAnswer::Granted(grant)) = &step.answer {
            self.grants.push((Granted { attempt: grant.attempt, ..granted }, grant.fence));
        }
        answered(step.answer)
    }
}

impl Op {
    /// The grant that it is about; of a claim, its owner. A reading has none.
    const fn granted(&self) -> Option<Granted> {
        match *self {
            Self::Claim { owner, .. } => Some(Granted { owner, attempt: 0 }),
            Self::Renew(granted)
            | Self::Step(granted, ..)
            | Self::Complete(granted, _)
            | Self::Release(granted, _) => Some(granted),
            Self::Get => None,
        }
    }
}

/// The request of an operation that is about a grant with this fence.
fn request(op: Op, fence: Fence) -> Request {
    let owner = |number: u32| {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        bytes[15] = 1;
        Owner::from_bytes(bytes)
    };
    let stored = |value: u32| StoredResult::Value(value.to_be_bytes().to_vec().into());
    match op {
        Op::Claim { owner: number, fingerprint, on_crash } => Claim::new(owner(number), LONG, LONG)
            .with_fingerprint(Some(Fingerprint::from_bytes([fingerprint; 32])))
            .with_on_crash(on_crash)
            .with_recovers(true)
            .into(),
        Op::Renew(granted) => Renew::new(owner(granted.owner), fence, LONG).into(),
        Op::Step(granted, position, value) => {
            let step = RecordedStep::new(format!("{value}"), None, stored(value));
            RecordStep::new(owner(granted.owner), fence, position, step).into()
        }
        Op::Complete(granted, value) => {
            Complete::new(owner(granted.owner), fence, Verdict::Completed, stored(value), LONG).into()
        }
        Op::Release(granted, cause) => Release::new(owner(granted.owner), fence, cause).into(),
        Op::Get => unreachable!("a reading is no request"),
    }
}

fn value(result: &StoredResult) -> u32 {
    match result {
        StoredResult::Value(bytes) => u32::from_be_bytes(bytes.as_ref().try_into().unwrap()),
        StoredResult::Tombstone(reason) => panic!("a tombstone for {reason:?}"),
    }
}

fn answered(answer: Answer) -> Ret {
    match answer {
        Answer::Claim(ClaimAnswer::Granted(grant)) => {
            Ret::Granted { attempt: grant.attempt, recovered: grant.recovered }
        }
        Answer::Claim(ClaimAnswer::Busy { .. }) => Ret::Busy,
        Answer::Claim(ClaimAnswer::Replay(replay)) => {
            Ret::Replay { attempt: replay.attempt, value: value(&replay.result) }
        }
        other => Ret::Other(other),
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
        let outcome = match op.granted() {
            None => store.get(&key).await.map(|record| found(record.as_ref())),
            Some(granted) => {
                let answer = store.apply(&key, request(op, fence)).await;
                if let Ok(Answer::Claim(ClaimAnswer::Granted(grant))) = &answer {
                    grants.push((Granted { attempt: grant.attempt, ..granted }, grant.fence));
                }
                answer.map(answered)
            }
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
