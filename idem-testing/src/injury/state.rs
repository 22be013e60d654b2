//! Counts the places that one run passes, and decides at which place the injury happens.
//!
//! Knows no store and no future.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::task::Waker;
use std::time::Duration;

use idem_core::defaults;
use idem_core::protocol::Owner;

use crate::OperationKind;

const NO_CALL: &str = "the test makes no call to injure\n\
    help: write `trial.call(|| ..).await`, with a call of the tested function";

const NO_OPERATION: &str = "no call uses the store of the trial\n\
    help: pass `trial.store()` to the tested function";

const SAME_POINTS: &str = "help: make the store and all other state in the body of the test, so that a run sees no \
    records of earlier runs; pass the same points in every run: without random numbers, real time and threads";

/// What happens at one place of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Injury {
    /// The worker dies before the operation is applied, or during an await.
    CrashBefore,
    /// The worker dies after the operation was applied.
    CrashAfter,
    /// The operation is applied, and its answer is lost.
    LostAnswer,
    /// The worker pauses until its lease is over and another worker has begun the call. Then the first worker
    /// continues to its end. After that, the other worker continues.
    LeaseLost,
    /// As `LeaseLost`, but the other worker has answered the call before the first worker continues.
    Superseded,
    /// Another call with the same arguments is made while the worker pauses.
    Duplicate,
    /// The caller drops its future.
    DroppedCaller,
}

impl fmt::Display for Injury {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CrashBefore => "crash before",
            Self::CrashAfter => "crash after",
            Self::LostAnswer => "lost answer",
            Self::LeaseLost => "lease lost",
            Self::Superseded => "superseded",
            Self::Duplicate => "duplicate",
            Self::DroppedCaller => "dropped caller",
        })
    }
}

/// Where an injury can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Operation(OperationKind),
    Await,
}

impl Place {
    pub(super) const fn injuries(self) -> &'static [Injury] {
        use Injury::{CrashAfter, CrashBefore, DroppedCaller, Duplicate, LeaseLost, LostAnswer, Superseded};

        match self {
            Self::Operation(_) => {
                &[CrashBefore, CrashAfter, LostAnswer, LeaseLost, Superseded, Duplicate, DroppedCaller]
            }
            Self::Await => &[CrashBefore, LeaseLost, Superseded, Duplicate, DroppedCaller],
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operation(kind) => write!(f, "the store's {kind}"),
            Self::Await => f.write_str("an await"),
        }
    }
}

/// The one injury of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) number: usize,
    pub(super) place: Place,
    pub(super) injury: Injury,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, place, injury } = self;
        write!(f, "{injury} at point {}, {place}", number + 1)
    }
}

/// The number of a call that the trial makes.
pub(super) type CallId = u64;

/// What happens to an operation at a place.
pub(super) enum Met {
    Apply,
    /// The operation is refused, because its worker is dead or paused.
    Unheard,
    Struck(Injury),
}

#[derive(Debug)]
pub(super) struct State {
    target: Option<Target>,
    /// Whether the injury has happened.
    pub(super) is_struck: bool,
    pub(super) places: Vec<Place>,
    last_call: CallId,
    /// The call that the trial makes now; `None` between two calls.
    pub(super) driven: Option<CallId>,
    workers: HashMap<Owner, CallId>,
    pub(super) dead: HashSet<CallId>,
    /// The call whose worker is paused.
    pub(super) paused: Option<CallId>,
    pub(super) longest_lease: Duration,
    /// The injury that an operation met, until the driver of its call handles it.
    raised: Option<Injury>,
    driver: Option<Waker>,
}

impl State {
    pub(super) fn new(target: Option<Target>) -> Self {
        Self {
            target,
            is_struck: false,
            places: Vec::new(),
            last_call: 0,
            driven: None,
            workers: HashMap::new(),
            dead: HashSet::new(),
            paused: None,
            longest_lease: defaults::LEASE,
            raised: None,
            driver: None,
        }
    }

    pub(super) fn begin(&mut self) -> CallId {
        self.last_call += 1;
        self.driven = Some(self.last_call);
        self.last_call
    }

    /// A time longer than any lease that was claimed.
    pub(super) fn beyond_leases(&self) -> Duration {
        self.longest_lease * 2 + Duration::from_secs(1)
    }

    /// Counts a place, and returns the injury that happens there.
    pub(super) fn pass(&mut self, place: Place) -> Option<Injury> {
        let number = self.places.len();
        self.places.push(place);
        let here = |target: &Target| target.number == number && target.place == place;
        let target = self.target.filter(here)?;
        self.is_struck = true;
        Some(target.injury)
    }

    /// Why the ended run proves nothing; `None` if it proves something.
    pub(super) fn fault(&self) -> Option<String> {
        match self.target {
            None if self.last_call == 0 => Some(NO_CALL.into()),
            None if !self.places.iter().any(|place| matches!(place, Place::Operation(_))) => {
                Some(NO_OPERATION.into())
            }
            Some(target) if !self.is_struck => {
                let instead = match self.places.get(target.number) {
                    Some(place) => format!("its point {} is {place}", target.number + 1),
                    None => format!("it passes {} points", self.places.len()),
                };
                Some(format!("the run does not come to this point: {instead}\n{SAME_POINTS}"))
            }
            _ => None,
        }
    }

    /// What happens to an operation of the worker `owner`. An operation without an owner, or with a new one,
    /// belongs to the call that the trial makes now. Between two calls, it belongs to the last call, whose
    /// background work may still run.
    pub(super) fn meet(&mut self, kind: OperationKind, owner: Option<Owner>) -> Met {
        let current = self.driven.unwrap_or(self.last_call);
        let worker = owner.map_or(current, |owner| *self.workers.entry(owner).or_insert(current));
        if self.dead.contains(&worker) || self.paused == Some(worker) {
            return Met::Unheard;
        }
        if self.driven != Some(worker) {
            return Met::Apply;
        }
        self.pass(Place::Operation(kind)).map_or(Met::Apply, Met::Struck)
    }

    pub(super) fn raise(&mut self, injury: Injury) {
        self.raised = Some(injury);
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    pub(super) fn take_raised(&mut self, driver: &Waker) -> Option<Injury> {
        self.driver = Some(driver.clone());
        self.raised.take()
    }
}
