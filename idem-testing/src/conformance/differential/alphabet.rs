//! The alphabet of the short traces: each kind of request, by each sender that could send it. A trace is a
//! sequence of requests on one key.

use std::num::NonZeroU32;
use std::time::Duration;

use super::asking::Ask;
use crate::OperationKind;
use crate::conformance::trial::{DAY, LONG, print_of, value};
use idem_core::protocol::{
    Claim, Complete, Fence, OnCrash, Owner, Record, RecordStep, RecordedStep, Release, ReleaseCause, Renew,
    Request, Resolution, Seen, State, StoredResult, Tombstone, Verdict,
};

/// A duration that is over at once.
const NONE: Duration = Duration::ZERO;

/// What the next request depends on: the record with its grant, and an earlier grant of the key.
pub(super) struct Scene<'a> {
    pub(super) record: Option<&'a Record>,
    pub(super) previous: Option<(Owner, Fence)>,
}

/// One request of the alphabet, by one sender. Its details depend on the scene.
pub(super) struct Symbol {
    /// Whether a trace may continue after this request.
    pub(super) extends: bool,
    /// Whether the second owner sends this request. If a trace begins with such a request, it ends there: a
    /// longer trace would repeat a trace of the first owner with the two owners exchanged.
    pub(super) second: bool,
    /// Whether this request is about a grant of another owner or another fence. The longest traces do not end
    /// with such a request.
    pub(super) foreign: bool,
    ask: Box<dyn Fn(&Scene<'_>) -> Ask + Send + Sync>,
}

impl Symbol {
    fn new(extends: bool, ask: impl Fn(&Scene<'_>) -> Ask + Send + Sync + 'static) -> Self {
        Self { extends, second: false, foreign: false, ask: Box::new(ask) }
    }

    pub(super) fn ask(&self, scene: &Scene<'_>) -> Ask {
        (self.ask)(scene)
    }

    pub(super) fn kind(&self) -> OperationKind {
        self.ask(&Scene { record: None, previous: None }).kind()
    }
}

/// Who sends a request about a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Holder,
    PreviousHolder,
    Stranger,
    OtherFence(i64),
}

impl By {
    const FOREIGN: [Self; 4] =
        [Self::PreviousHolder, Self::Stranger, Self::OtherFence(-1), Self::OtherFence(1)];

    fn grant(self, scene: &Scene<'_>) -> (Owner, Fence) {
        let unknown = (owner(3), Fence::new(1));
        let (holder, fence) = scene.record.map_or(unknown, |record| (record.owner, record.fence));
        match self {
            Self::Holder => (holder, fence),
            Self::PreviousHolder => scene.previous.unwrap_or(unknown),
            Self::Stranger => (owner(3), fence),
            Self::OtherFence(change) => (holder, Fence::new(fence.get().saturating_add_signed(change))),
        }
    }
}

fn owner(number: u8) -> Owner {
    Owner::from_bytes([number; 16])
}

pub(super) fn all() -> Vec<Symbol> {
    let mut symbols = claims();
    for (extends, request) in of_a_holder() {
        symbols.push(by(By::Holder, extends, request));
    }
    for sender in By::FOREIGN {
        for request in of_others() {
            symbols.push(by(sender, false, request));
        }
    }
    symbols.extend(resolutions());
    symbols.push(Symbol::new(true, |_| Ask::Forget));
    symbols
}

fn claims() -> Vec<Symbol> {
    let mut symbols = Vec::new();
    for number in [1, 2] {
        let plain = Claim::new(owner(number), LONG, DAY);
        let cautious = plain.clone().with_on_crash(OnCrash::InDoubt);
        let at_most = |attempts, claim: &Claim| claim.clone().with_max_attempts(NonZeroU32::new(attempts));
        let print = |byte| plain.clone().with_fingerprint(Some(print_of(byte)));
        let claims = [
            (true, plain.clone()),
            (true, plain.clone().with_lease(NONE)),
            (true, plain.clone().with_lease(NONE).with_ttl(NONE)),
            (false, plain.clone().with_lease(LONG * 2).with_ttl(DAY * 3)),
            (false, plain.clone().with_recovers(true)),
            (true, cautious.clone()),
            (true, cautious.clone().with_lease(NONE)),
            (true, cautious.clone().with_recovers(true)),
            (true, print(1)),
            (true, print(1).with_lease(NONE)),
            (false, print(2)),
            (true, at_most(1, &plain)),
            (false, at_most(1, &plain).with_ttl(DAY * 3)),
            (true, at_most(1, &plain).with_recovers(true)),
            (false, at_most(1, &cautious).with_recovers(true)),
            (false, at_most(2, &plain)),
        ];
        symbols.extend(claims.map(|(extends, claim)| Symbol {
            second: number == 2,
            ..Symbol::new(extends, move |_| Ask::Step(claim.clone().into()))
        }));
    }
    symbols
}

type OfGrant = Box<dyn Fn(&Scene<'_>, Owner, Fence) -> Request + Send + Sync>;

fn by(sender: By, extends: bool, request: OfGrant) -> Symbol {
    let ask = move |scene: &Scene<'_>| {
        let (owner, fence) = sender.grant(scene);
        Ask::Step(request(scene, owner, fence))
    };
    Symbol { foreign: sender != By::Holder, ..Symbol::new(extends, ask) }
}

/// The requests of a holder. The `bool` says whether a trace may continue after the request.
fn of_a_holder() -> Vec<(bool, OfGrant)> {
    let mut requests = vec![
        (true, renewal(LONG * 2)),
        (true, renewal(NONE)),
        (true, step(|steps| (steps.len(), named("a")))),
        (false, step(|steps| (0, steps.first().cloned().unwrap_or_else(|| named("a"))))),
        (false, step(|_| (0, named("b")))),
        (false, step(|steps| (steps.len() + 1, named("a")))),
        (true, completion(Verdict::Completed, value("result"), DAY)),
        (true, completion(Verdict::Failed, value("error"), DAY)),
        (true, completion(Verdict::Completed, value("result"), NONE)),
        (false, completion(Verdict::Completed, StoredResult::Tombstone(Tombstone::TooLarge), DAY * 3)),
        (true, release(ReleaseCause::Failed, LONG)),
        (true, release(ReleaseCause::Abandoned, LONG)),
    ];
    for (cause, retry_after) in [
        (ReleaseCause::Failed, NONE),
        (ReleaseCause::Abandoned, NONE),
        // The protocol ignores the `retry_after` of these causes.
        (ReleaseCause::Doubtful, LONG),
        (ReleaseCause::Unused, LONG),
        (ReleaseCause::NothingHappened, LONG),
    ] {
        requests.push((true, release(cause, retry_after)));
    }
    requests
}

/// The requests of a sender that does not hold the claim. The store must refuse all of them.
fn of_others() -> Vec<OfGrant> {
    vec![
        renewal(LONG * 2),
        step(|steps| (steps.len(), named("stolen"))),
        step(|steps| (0, steps.first().cloned().unwrap_or_else(|| named("stolen")))),
        completion(Verdict::Completed, value("stolen"), DAY),
        release(ReleaseCause::Failed, NONE),
        release(ReleaseCause::Abandoned, NONE),
        release(ReleaseCause::Unused, NONE),
    ]
}

fn renewal(lease: Duration) -> OfGrant {
    Box::new(move |_, owner, fence| Renew::new(owner, fence, lease).into())
}

fn completion(verdict: Verdict, result: StoredResult, ttl: Duration) -> OfGrant {
    Box::new(move |_, owner, fence| Complete::new(owner, fence, verdict, result.clone(), ttl).into())
}

fn release(cause: ReleaseCause, retry_after: Duration) -> OfGrant {
    Box::new(move |_, owner, fence| Release::new(owner, fence, cause).with_retry_after(retry_after).into())
}

fn named(name: &str) -> RecordedStep {
    RecordedStep::new(name.to_owned(), None, value(format!("of {name}")))
}

/// A request to record a step. From the recorded steps, `of` chooses the position and the new step.
fn step(of: fn(&[RecordedStep]) -> (usize, RecordedStep)) -> OfGrant {
    Box::new(move |scene, owner, fence| {
        let (position, step) = of(scene.record.map_or(&[][..], |record| &record.steps));
        RecordStep::new(owner, fence, u32::try_from(position).unwrap_or(u32::MAX), step).into()
    })
}

/// An operator's decisions: on any record, on a record that is unchanged since the operator saw it, and on a
/// changed record.
fn resolutions() -> Vec<Symbol> {
    let symbol = |extends, ask: fn(&Seen) -> Resolution| {
        Symbol::new(extends, move |scene| Ask::Step(ask(&seen(scene)).into()))
    };
    vec![
        symbol(true, |_| Resolution::Release),
        symbol(true, |_| Resolution::Record(Verdict::Completed, value("word"))),
        symbol(false, |_| {
            Resolution::Record(Verdict::Failed, StoredResult::Tombstone(Tombstone::NotEncodable))
        }),
        symbol(false, |seen| Resolution::Release.if_seen(*seen)),
        symbol(false, |seen| Resolution::Record(Verdict::Failed, value("word")).if_seen(*seen)),
        symbol(true, |seen| Resolution::ForgetSeen(*seen)),
        symbol(false, |seen| Resolution::ForgetSeen(other_fence(*seen))),
        symbol(false, |seen| Resolution::Release.if_seen(other_fence(*seen))),
        symbol(false, |seen| Resolution::Release.if_seen(other_attempt(*seen))),
        symbol(false, |seen| {
            Resolution::Record(Verdict::Completed, value("word")).if_seen(other_state(*seen))
        }),
    ]
}

fn seen(scene: &Scene<'_>) -> Seen {
    let never = || Record::new(State::InDoubt, owner(3), Fence::new(1));
    scene.record.map_or_else(|| Seen::of(&never()), Seen::of)
}

fn other_fence(mut seen: Seen) -> Seen {
    seen.fence = Fence::new(seen.fence.get().saturating_add(1));
    seen
}

fn other_attempt(mut seen: Seen) -> Seen {
    seen.attempt += 1;
    seen
}

fn other_state(mut seen: Seen) -> Seen {
    seen.state = if seen.state == State::InDoubt { State::InFlight } else { State::InDoubt };
    seen
}
