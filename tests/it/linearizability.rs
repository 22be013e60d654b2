//! Tests that concurrent histories on real stores, with lost and late answers, are linearizable: a record
//! that applies one operation after the other could have given the same answers.
//!
//! Each history is recorded from the outside. Then stateright's linearizability tester checks it against the
//! shipped protocol. An operation with an unknown outcome stays open: it may take effect at any later time,
//! or never. An operation that was certainly not applied is left out.

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

/// Longer than any history, so no lease ends and nothing expires.
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

/// A grant. Real stores take fences from their clocks, so a history identifies a grant by owner and attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Granted {
    owner: Owner,
    attempt: u32,
}

/// A request, with the grant that it is about; `None` is a read. For a claim, only the owner of the grant is
/// set.
type Op = Option<(Granted, Request)>;

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
    /// Any other answer. In these histories, it has no time and no fence: no release sets a delay, so the
    /// answer `RetryAt` does not occur.
    Other(Answer),
    Found(Option<(State, u32, Option<u32>, Vec<u32>)>),
}

/// One record that takes one operation after another.
#[derive(Clone, Debug, Default)]
struct OneKey {
    record: Option<Record>,
    grants: Vec<(Granted, Fence)>,
}

const NOW: Timestamp = Timestamp::from_micros(1_000);

impl SequentialSpec for OneKey {
    type Op = Op;
    type Ret = Ret;

    fn invoke(&mut self, op: &Op) -> Ret {
        let Some((granted, request)) = op else { return found(self.record.as_ref()) };
        let known = self.grants.iter().find(|(known, _)| known == granted);
        let request = under(request.clone(), known.map_or(Fence::default(), |(_, fence)| *fence));
        let step = protocol::apply(self.record.as_ref(), Fence::default(), &request, NOW);
        if let Some(record) = &step.write {
            assert_eq!(protocol::is_endless(record), record.expires_at.is_none());
            self.record = step.write;
        }
        if let Answer::Claim(ClaimAnswer::Granted(grant)) = &step.answer {
            self.grants.push((Granted { attempt: grant.attempt, ..*granted }, grant.fence));
        }
        answered(step.answer)
    }
}

/// Sets the fence of a request.
fn under(mut request: Request, fence: Fence) -> Request {
    match &mut request {
        Request::Renew(renew) => renew.fence = fence,
        Request::RecordStep(step) => step.fence = fence,
        Request::Complete(complete) => complete.fence = fence,
        Request::Release(release) => release.fence = fence,
        _ => {}
    }
    request
}

fn stored(value: u32) -> StoredResult {
    StoredResult::Value(value.to_be_bytes().to_vec().into())
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

/// An event that was seen from the outside.
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
            // For the tester, each operation is a separate thread. So only invocations and returns limit the
            // possible orders.
            match event {
                Event::Invoke(id, op) if !is_left_out(id) => drop(tester.on_invoke(*id, op.clone()).unwrap()),
                Event::Return(id, ret) => drop(tester.on_return(*id, ret.clone()).unwrap()),
                Event::Invoke(..) | Event::Never(_) => {}
            }
        }
        tester.is_consistent()
    }
}

/// One client: reads, claims, renews, records steps, completes and releases, sometimes with a claim that it
/// no longer holds.
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
        let op: Op = match (random.random_range(0..13), granted) {
            (0, _) => None,
            // Few positions and values, so that several clients record the same step.
            (10..=12, Some((granted, fence))) => {
                let (position, value) = (random.random_range(0..3), random.random_range(0..2));
                let step = RecordedStep::new(format!("{value}"), None, stored(value));
                Some((granted, RecordStep::new(granted.owner, fence, position, step).into()))
            }
            (1, Some((granted, fence))) => Some((granted, Renew::new(granted.owner, fence, LONG).into())),
            (2..=5, Some((granted, fence))) => {
                let result = stored(random.random_range(0..1_000));
                let complete = Complete::new(granted.owner, fence, Verdict::Completed, result, LONG);
                Some((granted, complete.into()))
            }
            (6..=8, Some((granted, fence))) => {
                let cause = CAUSES[random.random_range(0..CAUSES.len())];
                Some((granted, Release::new(granted.owner, fence, cause).into()))
            }
            // About half of the claims have the owner of the client's previous claim, as if that claim's
            // answer had been lost. Each claim says that its caller can find out what an earlier run did.
            _ => {
                owner_number += u32::from(random.random_bool(0.5));
                let fingerprint = Fingerprint::from_bytes([u8::from(random.random_bool(0.1)); 32]);
                let on_crash = if random.random_bool(0.3) { OnCrash::InDoubt } else { OnCrash::Rerun };
                let owner = Owner::from_bytes((1 + u128::from(owner_number)).to_be_bytes());
                let claim = Claim::new(owner, LONG, LONG).with_fingerprint(Some(fingerprint));
                let claim = claim.with_on_crash(on_crash).with_recovers(true);
                Some((Granted { owner, attempt: 0 }, claim.into()))
            }
        };
        let id = history.invoke(op.clone());
        let outcome = match op {
            None => store.get(&key).await.map(|record| found(record.as_ref())),
            Some((granted, request)) => {
                let answer = store.apply(&key, request).await;
                if let Ok(Answer::Claim(ClaimAnswer::Granted(grant))) = &answer {
                    grants.push((Granted { attempt: grant.attempt, ..granted }, grant.fence));
                }
                answer.map(answered)
            }
        };
        history.end(id, outcome);
    }
}

/// Runs many short histories, each on a key of its own. Stops at the first history that no order explains.
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
