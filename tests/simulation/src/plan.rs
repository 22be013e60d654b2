//! A plan determines all calls, events and faults of one history. A seed makes a plan.
//!
//! A plan consists of parts that can each be left out, so that a plan with a violation can be shrunk. Plans
//! with a violation are kept in `regressions/`. Their seeds would not be enough, because a seed makes another
//! plan as soon as this file changes.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The argument of a call that has no fingerprint.
pub const NO_ARGUMENT: u8 = 2;

/// Milliseconds of simulated time.
pub type Millis = u64;

/// Everything that happens in one history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub seed: u64,
    /// How long calls and events go on. After that nothing fails, and the simulation waits until all work has
    /// ended.
    pub length: Millis,
    pub workers: usize,
    pub operations: Vec<OperationPlan>,
    pub calls: Vec<CallPlan>,
    pub events: Vec<EventPlan>,
    pub weather: Vec<Weather>,
    /// Faults of single requests. In a shrunk plan they replace the weather that caused them.
    pub faults: Vec<FaultPlan>,
}

/// The policy of one operation. An operation has one key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationPlan {
    pub lease: Millis,
    pub ttl: Millis,
    pub store_timeout: Millis,
    pub in_doubt: bool,
    pub recover: Option<Recover>,
    pub terminal: bool,
    pub record_if: bool,
    pub max_attempts: Option<u32>,
    pub timeout: Option<Millis>,
    pub retry_after: Option<(Millis, Millis)>,
    /// Whether the error of a body says when the key is due again.
    pub retry_after_error: bool,
    pub wait: Millis,
    pub fail_open: bool,
    pub fingerprint: bool,
    /// Whether its calls come over HTTP.
    pub http: bool,
}

/// What a `recover` function does. It always knows the truth about the effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Recover {
    /// Returns the value if there was an effect.
    Truthful,
    /// If there was an effect, returns its value. The first time, the value is still pending.
    PendingFirst,
    /// Fails the first time.
    FailsFirst,
}

/// The calls of one caller.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallPlan {
    pub at: Millis,
    pub worker: usize,
    pub operation: usize,
    pub way: Way,
    /// The argument from which the call makes its fingerprint; [`NO_ARGUMENT`] if it makes none.
    pub argument: u8,
    /// The caller drops its future after this time.
    pub dropped_after: Option<Millis>,
    /// The call has a deadline this long after its start. The lease ends at the deadline at the latest.
    #[serde(default)]
    pub deadline: Option<Millis>,
    /// How many calls the caller makes at most. A final result ends the calls.
    pub tries: u32,
    pub pause: Millis,
    pub body: Script,
}

/// The interface by which a call is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    Run,
    Detached,
    MissingKey,
    Transaction {
        commit: bool,
        /// Whether the body itself ends the savepoint of its call, by a statement of its own.
        #[serde(default)]
        loses_savepoint: bool,
    },
    Message,
    /// By `begin`. The caller ends the attempt itself.
    Begun,
}

/// What a body does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Script {
    pub acts: Vec<Act>,
    pub end: End,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Act {
    Sleep(Millis),
    /// An effect in the outside world, which cannot be undone.
    Effect,
    Step {
        name: u8,
        input: Option<u8>,
        takes: Millis,
        fails: bool,
    },
    /// A loop that makes a step in each round.
    Steps {
        rounds: u8,
        pause: Millis,
    },
    /// A step whose future the body drops after a time.
    DroppedStep {
        name: u8,
        takes: Millis,
        dropped_after: Millis,
    },
    /// Two steps at once.
    TwoSteps {
        names: (u8, u8),
        takes: (Millis, Millis),
    },
    /// A step that begins inside another step, in a scope of the call's context.
    NestedStep {
        name: u8,
    },
    /// A task in the call's context. It makes a step after a time.
    Spawned {
        after: Millis,
        name: u8,
        awaited: bool,
    },
    /// A task in the call's context. It calls the same key after a time.
    SpawnedCall {
        after: Millis,
    },
    /// The body calls another operation, or its own operation.
    Call {
        operation: usize,
    },
    /// The body calls another function, and that function's body calls this body's operation.
    Through {
        /// The other function's operation; `None` for a function without a key.
        operation: Option<usize>,
    },
    /// The task does not yield for this time, while other tasks of its process go on.
    Block(Millis),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    #[default]
    Value,
    /// A value that `record_if` refuses.
    Pending,
    /// A value that is larger than the store accepts.
    Large,
    /// A value that does not serialize.
    Unencodable,
    Error {
        retry_after: Millis,
    },
    Terminal,
    Panic,
    Hang,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventPlan {
    pub at: Millis,
    pub what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    Kill {
        worker: usize,
    },
    /// The process is stopped, and continues later.
    Stop {
        worker: usize,
        lasts: Millis,
    },
    /// The process shuts down in good order.
    Shutdown {
        worker: usize,
    },
    /// The store does not answer, or it refuses every request: for all workers or for one.
    Outage {
        worker: Option<usize>,
        lasts: Millis,
        refuses: bool,
    },
    Jump {
        by: i64,
    },
    Resolve {
        operation: usize,
        verdict: Resolve,
    },
    Forget {
        operation: usize,
    },
    Purge,
    List,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Resolve {
    Done,
    Failed,
    Release,
}

/// How likely each fault is for the requests of a period.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Weather {
    pub from: Millis,
    pub lasts: Millis,
    pub worker: Option<usize>,
    /// The only kind of request that the weather concerns; `None` for all.
    #[serde(default)]
    pub only: Option<String>,
    /// One of `one_in` requests has a fault.
    pub one_in: u32,
    /// The faults that happen, with their weights.
    pub kinds: Vec<(Fault, u32)>,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The store refuses the request: it is certain that nothing happened.
    Refused,
    /// The request is lost, and the sender learns that something broke.
    RequestLost,
    /// The request is lost, and the sender learns nothing.
    RequestSwallowed,
    /// The answer is lost, and the sender learns that something broke.
    AnswerLost,
    /// The answer is lost, and the sender learns nothing.
    AnswerSwallowed,
    /// The sender learns that something broke, and the request is applied after this time.
    AppliedLate(Millis),
    /// The request is applied after this time, even if its sender gave up.
    Slow(Millis),
    /// The answer takes this time.
    SlowAnswer(Millis),
    /// The request is applied, answered, and applied once more after this time.
    Repeated(Millis),
}

/// The fault of one request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultPlan {
    pub worker: usize,
    /// The kind of the request, and when it was sent, in microseconds.
    pub request: String,
    pub at: u64,
    pub fault: Fault,
}

fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(0..n) == 0
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.usize(0..from.len())]
}

fn maybe<T>(rng: &mut Rng, n: u32, make: impl FnOnce(&mut Rng) -> T) -> Option<T> {
    if one_in(rng, n) { Some(make(rng)) } else { None }
}

impl Plan {
    #[must_use]
    pub fn of(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let rng = &mut rng;
        let workers = rng.usize(1..=3);
        let count = rng.usize(1..=3);
        let mut operations: Vec<_> = (0..count).map(|_| operation(rng)).collect();
        // In a quarter of the histories, there is one operation without options other than `in_doubt`, as in
        // most users' programs.
        if one_in(rng, 4) {
            operations = vec![OperationPlan { in_doubt: one_in(rng, 2), ..plain(rng) }];
        }
        let count = operations.len();
        let longest = operations.iter().map(|operation| operation.lease).max().unwrap_or(1_000);
        let length = longest * rng.u64(3..=12);
        let calls = (0..rng.usize(4..=40)).map(|_| call(rng, length, workers, &operations)).collect();
        let events = match rng.u32(0..4) {
            0 => Vec::new(),
            most => (0..rng.u32(1..=most * 3)).map(|_| event(rng, length, workers, count, longest)).collect(),
        };
        let weather = match rng.u32(0..4) {
            0 => Vec::new(),
            most => (0..most).map(|_| weather(rng, length, workers, longest)).collect(),
        };
        let mut plan = Self { seed, length, workers, operations, calls, events, weather, faults: Vec::new() };
        for _ in 0..rng.u32(0..3) {
            match rng.u32(0..5) {
                0..=1 if plan.workers > 1 => plan.take_over(rng),
                2 if plan.workers > 1 => plan.stop_a_waiter(rng),
                3 => plan.end_in_an_outage(rng),
                _ => plan.lose_renewals(rng),
            }
        }
        plan
    }

    /// Lets a worker stand still, or lose its store, for longer than the lease of its call. Meanwhile another
    /// worker makes calls with the same key.
    fn take_over(&mut self, rng: &mut Rng) {
        let (owner, number) = (rng.usize(0..self.workers), rng.usize(0..self.operations.len()));
        let other = (owner + rng.usize(1..self.workers)) % self.workers;
        let lease = self.operations[number].lease;
        let at = rng.u64(0..=self.length / 2);
        let away = at + rng.u64(1..=lease);
        let lasts = lease + rng.u64(lease / 8..=lease * 2);
        let what = if one_in(rng, 2) {
            What::Stop { worker: owner, lasts }
        } else {
            What::Outage { worker: Some(owner), lasts, refuses: one_in(rng, 2) }
        };
        self.events.push(EventPlan { at: away, what });
        let mut calls = Vec::new();
        if one_in(rng, 2) {
            // An earlier run that fails, so that the run below is not the first attempt.
            let mut failing = self.call_of(rng, number, at.saturating_sub(lease / 4), owner);
            failing.body.acts.truncate(1);
            failing.body.end = End::Error { retry_after: 0 };
            failing.tries = 1;
            calls.push(failing);
        }
        let mut owned = self.call_of(rng, number, at, owner);
        // The body ends about when the worker is back.
        let until = away + lasts - at;
        owned.body.acts.insert(0, Act::Sleep(rng.u64(until / 2..=until)));
        owned.dropped_after = maybe(rng, 3, |rng| rng.u64(until / 2..=until));
        calls.push(owned);
        let over = away + lease;
        for _ in 0..rng.u32(1..=2) {
            let at = over + rng.u64(0..=lasts / 2);
            let mut taking = self.call_of(rng, number, at, other);
            taking.dropped_after = None;
            calls.push(taking);
        }
        self.calls.extend(calls);
    }

    /// Lets a worker's call wait for the lease of another call. The worker stands still when its call's wait
    /// ends, while that lease still runs.
    fn stop_a_waiter(&mut self, rng: &mut Rng) {
        let (owner, number) = (rng.usize(0..self.workers), rng.usize(0..self.operations.len()));
        let OperationPlan { lease, wait, store_timeout, .. } = self.operations[number];
        let (least, most) = (store_timeout + 1_100, lease / 3 * 2);
        if wait < 100 || least > most {
            return;
        }
        let at = rng.u64(0..=self.length / 2);
        let mut holding = self.call_of(rng, number, at, owner);
        holding.body.acts.insert(0, Act::Sleep(wait + lease));
        (holding.dropped_after, holding.deadline) = (None, None);
        let worker = (owner + rng.usize(1..self.workers)) % self.workers;
        let mut waiting = self.call_of(rng, number, at + 10, worker);
        (waiting.dropped_after, waiting.deadline) = (None, None);
        self.calls.extend([holding, waiting]);
        let lasts = rng.u64(least..=most);
        let away = (at + 10 + wait).saturating_sub(rng.u64(0..=lasts));
        self.events.push(EventPlan { at: away, what: What::Stop { worker, lasts } });
    }

    /// Lets a worker shut down during an outage of its store.
    fn end_in_an_outage(&mut self, rng: &mut Rng) {
        let (worker, number) = (rng.usize(0..self.workers), rng.usize(0..self.operations.len()));
        let lease = self.operations[number].lease;
        let at = rng.u64(0..=self.length / 2);
        let call = self.call_of(rng, number, at, worker);
        self.calls.push(call);
        let away = at + rng.u64(0..=lease / 2);
        let lasts = rng.u64(200..=lease * 2);
        let what = What::Outage { worker: maybe(rng, 2, |_| worker), lasts, refuses: one_in(rng, 2) };
        self.events.push(EventPlan { at: away, what });
        self.events.push(EventPlan { at: away + rng.u64(0..=lasts), what: What::Shutdown { worker } });
    }

    /// Adds a time in which renewals are answered late or fail, and all other requests are answered as usual.
    fn lose_renewals(&mut self, rng: &mut Rng) {
        let number = rng.usize(0..self.operations.len());
        let lease = self.operations[number].lease;
        let at = rng.u64(0..=self.length / 2);
        let worker = rng.usize(0..self.workers);
        let mut call = self.call_of(rng, number, at, worker);
        call.body.acts.push(Act::Steps { rounds: rng.u8(8..=40), pause: rng.u64(lease / 32..=lease / 8) });
        self.calls.push(call);
        let fails =
            pick(rng, &[Fault::Refused, Fault::RequestLost, Fault::RequestSwallowed, Fault::AnswerLost]);
        let slow = Fault::SlowAnswer(rng.u64(lease / 8..=lease / 3));
        self.weather.insert(
            0,
            Weather {
                from: at,
                lasts: lease * rng.u64(2..=8),
                worker: None,
                only: Some("renew".to_owned()),
                one_in: 1,
                kinds: vec![(slow, 1), (fails, rng.u32(1..=6))],
            },
        );
    }

    fn call_of(&self, rng: &mut Rng, number: usize, at: Millis, worker: usize) -> CallPlan {
        let operation = &self.operations[number];
        let way = match rng.u32(0..8) {
            _ if operation.http => Way::Run,
            0..=1 => Way::Detached,
            2 if may_begin(operation) => Way::Begun,
            _ => Way::Run,
        };
        CallPlan {
            at,
            worker,
            operation: number,
            way,
            argument: 0,
            dropped_after: maybe(rng, 4, |rng| rng.u64(0..=operation.lease)),
            deadline: maybe(rng, 12, |rng| rng.u64(0..=operation.lease)),
            tries: rng.u32(1..=3),
            pause: rng.u64(1..=operation.lease),
            body: script(rng, number, operation, self.operations.len()),
        }
    }
}

fn plain(rng: &mut Rng) -> OperationPlan {
    OperationPlan {
        lease: pick(rng, &[500, 1_000, 5_000, 30_000]),
        ttl: pick(rng, &[86_400_000, 86_400_000, 86_400_000, 60_000, 5_000]),
        store_timeout: pick(rng, &[300, 2_000, 10_000]),
        ..OperationPlan::default()
    }
}

fn operation(rng: &mut Rng) -> OperationPlan {
    let base = plain(rng);
    let lease = base.lease;
    let in_doubt = one_in(rng, 2);
    let recover =
        maybe(rng, 3, |rng| pick(rng, &[Recover::Truthful, Recover::PendingFirst, Recover::FailsFirst]));
    if one_in(rng, 8) {
        // The HTTP layer has options only for these policies.
        return OperationPlan {
            http: true,
            in_doubt,
            timeout: maybe(rng, 2, |rng| rng.u64(lease / 4..=lease * 2)),
            wait: if one_in(rng, 2) { rng.u64(0..=lease * 3) } else { 0 },
            fail_open: !in_doubt && one_in(rng, 6),
            ..base
        };
    }
    OperationPlan {
        in_doubt,
        recover,
        terminal: one_in(rng, 3),
        record_if: one_in(rng, 4) || recover == Some(Recover::PendingFirst),
        max_attempts: maybe(rng, 3, |rng| rng.u32(1..=4)),
        timeout: maybe(rng, 4, |rng| rng.u64(lease / 4..=lease * 2)),
        retry_after: maybe(rng, 5, |rng| {
            let least = rng.u64(1..=lease);
            (least, least * rng.u64(1..=8))
        }),
        retry_after_error: one_in(rng, 6),
        wait: if one_in(rng, 2) { rng.u64(0..=lease * 3) } else { 0 },
        fail_open: !in_doubt && one_in(rng, 4),
        fingerprint: one_in(rng, 5),
        http: false,
        ..base
    }
}

/// Whether `Operation::begin` supports all that this operation needs.
const fn may_begin(operation: &OperationPlan) -> bool {
    operation.recover.is_none() && !operation.record_if
}

fn call(rng: &mut Rng, length: Millis, workers: usize, operations: &[OperationPlan]) -> CallPlan {
    let number = rng.usize(0..operations.len());
    let operation = &operations[number];
    let OperationPlan { lease, ttl, store_timeout, wait, terminal, fingerprint, .. } = *operation;
    let plain =
        OperationPlan { lease, ttl, store_timeout, wait, terminal, fingerprint, ..OperationPlan::default() };
    let may_transact = *operation == plain && wait <= lease;
    let way = match rng.u32(0..16) {
        _ if operation.http => Way::Run,
        0..=1 => Way::Detached,
        2 if operation.recover.is_none() => Way::Message,
        3 => Way::MissingKey,
        8 if may_begin(operation) => Way::Begun,
        4..=7 if may_transact => {
            Way::Transaction { commit: !one_in(rng, 4), loses_savepoint: one_in(rng, 6) }
        }
        _ => Way::Run,
    };
    // The calls come in clusters, so that calls with the same key overlap.
    let at = match rng.u32(0..3) {
        0 => rng.u64(0..=length),
        1 => length / 4 * rng.u64(0..=3) + rng.u64(0..=20),
        _ => length / 8 * rng.u64(0..=7) + rng.u64(0..=lease / 2),
    };
    CallPlan {
        at,
        worker: rng.usize(0..workers),
        operation: number,
        way,
        argument: pick(rng, &[0, 0, 0, 0, 1, NO_ARGUMENT]),
        dropped_after: maybe(rng, 5, |rng| if one_in(rng, 2) { rng.u64(0..=30) } else { rng.u64(0..=lease) }),
        deadline: maybe(rng, 12, |rng| rng.u64(0..=lease)),
        tries: rng.u32(1..=3),
        pause: rng.u64(1..=lease * 2),
        body: script(rng, number, operation, operations.len()),
    }
}

fn script(rng: &mut Rng, own: usize, operation: &OperationPlan, operations: usize) -> Script {
    let lease = operation.lease;
    let acts = (0..rng.usize(0..=4)).map(|_| act(rng, own, lease, operations)).collect();
    let end = match rng.u32(0..20) {
        0..=2 => End::Error {
            retry_after: match rng.u32(0..8) {
                0 => u64::MAX / 2,
                _ => rng.u64(0..=lease),
            },
        },
        3..=4 if operation.terminal => End::Terminal,
        5..=6 if operation.record_if => End::Pending,
        7 => End::Panic,
        8 => End::Hang,
        9 if one_in(rng, 2) => End::Large,
        9 => End::Unencodable,
        _ => End::Value,
    };
    Script { acts, end }
}

fn act(rng: &mut Rng, own: usize, lease: Millis, operations: usize) -> Act {
    let name = rng.u8(0..4);
    let short = if one_in(rng, 4) { rng.u64(0..=lease) } else { rng.u64(0..=20) };
    match rng.u32(0..20) {
        0..=3 => Act::Sleep(short),
        4 => Act::Sleep(rng.u64(0..=lease * 3)),
        5..=6 => Act::Effect,
        7..=9 => {
            Act::Step { name, input: maybe(rng, 4, |rng| rng.u8(0..2)), takes: short, fails: one_in(rng, 6) }
        }
        10 => Act::DroppedStep { name, takes: short, dropped_after: rng.u64(0..=30) },
        11 => Act::TwoSteps { names: (name, (name + 1) % 4), takes: (short, rng.u64(0..=20)) },
        12 => Act::NestedStep { name },
        13..=14 => Act::Spawned { after: short, name, awaited: one_in(rng, 2) },
        15 => Act::SpawnedCall { after: short },
        16 => Act::Call { operation: if one_in(rng, 3) { own } else { rng.usize(0..operations) } },
        18 => Act::Steps { rounds: rng.u8(2..=12), pause: rng.u64(1..=lease / 4) },
        17 => Act::Through { operation: maybe(rng, 2, |rng| rng.usize(0..operations)) },
        _ => Act::Block(rng.u64(0..=lease * 2)),
    }
}

fn event(rng: &mut Rng, length: Millis, workers: usize, operations: usize, lease: Millis) -> EventPlan {
    let worker = rng.usize(0..workers);
    let operation = rng.usize(0..operations);
    // Shorter than a lease, a little longer, or up to four times as long.
    let lasts = match rng.u32(0..3) {
        0 => rng.u64(0..=lease / 2),
        1 => lease + rng.u64(0..=lease / 2),
        _ => rng.u64(lease..=lease * 4),
    };
    let what = match rng.u32(0..20) {
        0..=4 => What::Kill { worker },
        5..=6 => What::Stop { worker, lasts },
        7 => What::Shutdown { worker },
        8..=11 => What::Outage { worker: maybe(rng, 2, |_| worker), lasts, refuses: one_in(rng, 2) },
        12 => {
            let by = i64::try_from(lasts).unwrap_or(0);
            What::Jump { by: if one_in(rng, 2) { by } else { -by } }
        }
        13..=15 => What::Resolve {
            operation,
            verdict: pick(rng, &[Resolve::Done, Resolve::Failed, Resolve::Release]),
        },
        16 => What::Forget { operation },
        17..=18 => What::Purge,
        _ => What::List,
    };
    EventPlan { at: rng.u64(0..=length), what }
}

fn weather(rng: &mut Rng, length: Millis, workers: usize, lease: Millis) -> Weather {
    let slow = |rng: &mut Rng| if one_in(rng, 2) { rng.u64(1..=lease / 4) } else { rng.u64(1..=lease * 2) };
    let (late, before, after, repeated) = (slow(rng), slow(rng), slow(rng), slow(rng));
    let all = [
        Fault::Refused,
        Fault::RequestLost,
        Fault::RequestSwallowed,
        Fault::AnswerLost,
        Fault::AnswerSwallowed,
        Fault::AppliedLate(late),
        Fault::Slow(before),
        Fault::SlowAnswer(after),
        Fault::Repeated(repeated),
    ];
    // Some weather has only one kind of fault, so that the same fault happens several times in a row.
    let kinds = match rng.u32(0..4) {
        0 => vec![(pick(rng, &all), 1)],
        1 => vec![(Fault::AnswerLost, 2), (Fault::Refused, 1)],
        _ => all.iter().map(|kind| (*kind, rng.u32(0..4))).filter(|(_, weight)| *weight > 0).collect(),
    };
    Weather {
        from: rng.u64(0..=length),
        lasts: rng.u64(1..=length),
        worker: maybe(rng, 2, |rng| rng.usize(0..workers)),
        only: None,
        one_in: pick(rng, &[1, 2, 2, 4, 10, 30]),
        kinds: if kinds.is_empty() { vec![(Fault::AnswerLost, 1)] } else { kinds },
    }
}
