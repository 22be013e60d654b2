//! Chooses the next fault, by script or from a seed.
//!
//! Knows nothing of stores.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use idem_core::protocol::Request;

/// The kind of an operation of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OperationKind {
    /// [`Store::claim`](idem_core::Store::claim).
    Claim,
    /// [`Store::renew`](idem_core::Store::renew).
    Renew,
    /// [`Store::record_step`](idem_core::Store::record_step).
    RecordStep,
    /// [`Store::complete`](idem_core::Store::complete).
    Complete,
    /// [`Store::release`](idem_core::Store::release).
    Release,
    /// [`Store::resolve`](idem_core::Store::resolve).
    Resolve,
    /// [`Store::forget`](idem_core::Store::forget).
    Forget,
    /// [`Store::get`](idem_core::Store::get).
    Get,
    /// [`Store::purge`](idem_core::Store::purge).
    Purge,
    /// [`Store::list`](idem_core::Store::list).
    List,
}

impl OperationKind {
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Claim(_) => Self::Claim,
            Request::Renew(_) => Self::Renew,
            Request::RecordStep(_) => Self::RecordStep,
            Request::Complete(_) => Self::Complete,
            Request::Release(_) => Self::Release,
            // This is `Request::Resolve`. Extend the list when the protocol gets a new request.
            _ => Self::Resolve,
        }
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::RecordStep => "record step",
            Self::Complete => "complete",
            Self::Release => "release",
            Self::Resolve => "resolve",
            Self::Forget => "forget",
            Self::Get => "get",
            Self::Purge => "purge",
            Self::List => "list",
        })
    }
}

/// The fault of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The operation is not applied, and the error says so:
    /// [`StoreErrorKind::Unavailable`](idem_core::StoreErrorKind).
    FailBefore,
    /// The operation is applied, but its answer is lost:
    /// [`StoreErrorKind::OutcomeUnknown`](idem_core::StoreErrorKind).
    FailAfter,
    /// The operation fails at once with [`StoreErrorKind::OutcomeUnknown`](idem_core::StoreErrorKind). It is
    /// applied only after this time, when nobody expects it any more.
    FailThenApply(Duration),
    /// The operation is applied after this time.
    DelayBefore(Duration),
    /// The operation is applied at once and answered after this time.
    DelayAfter(Duration),
    /// The operation is not applied and never answered. The caller must give up by itself.
    HangBefore,
    /// The operation is applied but never answered. The caller must give up by itself.
    HangAfter,
}

/// How often each fault happens, as a probability for each operation.
///
/// The probabilities are added up in this order: `fail_before`, `fail_after`, `apply_late`, `delay`. Faults
/// beyond a sum of 1 never happen.
///
/// ```
/// # use idem_runtime as idem;
/// use std::time::Duration;
/// use idem_testing::Rates;
///
/// let rates = Rates::none()
///     .fail_before(0.05)
///     .fail_after(0.05)
///     .delay(0.10, Duration::from_millis(20));
/// # let _ = rates;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[must_use]
pub struct Rates {
    fail_before: f64,
    fail_after: f64,
    apply_late: f64,
    delay: f64,
    longest: Duration,
}

impl Rates {
    /// No fault at all.
    pub fn none() -> Self {
        Self::default()
    }

    /// How often an operation fails without being applied.
    pub const fn fail_before(mut self, probability: f64) -> Self {
        self.fail_before = probability;
        self
    }

    /// How often an operation is applied but its answer is lost.
    pub const fn fail_after(mut self, probability: f64) -> Self {
        self.fail_after = probability;
        self
    }

    /// How often an answer is lost at once, and the operation is applied later: after at most the longest
    /// delay of [`delay`](Self::delay).
    pub const fn apply_late(mut self, probability: f64) -> Self {
        self.apply_late = probability;
        self
    }

    /// How often an operation is slow, before or after it is applied, and the longest delay.
    pub const fn delay(mut self, probability: f64, longest: Duration) -> Self {
        self.delay = probability;
        self.longest = longest;
        self
    }

    fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Option<Fault> {
        let mut drawn: f64 = rng.random();
        let mut falls_in = |probability: f64| {
            let inside = drawn < probability;
            drawn -= probability;
            inside
        };
        let delay = |rng: &mut Xoshiro256PlusPlus| {
            let longest = u64::try_from(self.longest.as_micros()).unwrap_or(u64::MAX);
            Duration::from_micros(rng.random_range(0..=longest))
        };
        if falls_in(self.fail_before) {
            Some(Fault::FailBefore)
        } else if falls_in(self.fail_after) {
            Some(Fault::FailAfter)
        } else if falls_in(self.apply_late) {
            Some(Fault::FailThenApply(delay(rng)))
        } else if falls_in(self.delay) {
            let delay = delay(rng);
            Some(if rng.random() { Fault::DelayBefore(delay) } else { Fault::DelayAfter(delay) })
        } else {
            None
        }
    }
}

/// The script for the operations of one kind.
#[derive(Debug, Default)]
struct Script {
    next: VecDeque<Option<Fault>>,
    always: Option<Fault>,
    counts: Counts,
}

/// What happened to the operations of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) asked: u64,
    pub(super) applied: u64,
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    seed: u64,
    rates: Rates,
    down: bool,
    scripts: HashMap<OperationKind, Script>,
}

impl Plan {
    pub(super) fn seeded(seed: u64, rates: Rates) -> Self {
        Self { seed, rates, ..Self::default() }
    }

    fn script(&mut self, kind: OperationKind) -> &mut Script {
        self.scripts.entry(kind).or_default()
    }

    pub(super) fn counts(&mut self, kind: OperationKind) -> &mut Counts {
        &mut self.script(kind).counts
    }

    pub(super) const fn set_down(&mut self, down: bool) {
        self.down = down;
    }

    pub(super) fn set_always(&mut self, kind: OperationKind, fault: Option<Fault>) {
        self.script(kind).always = fault;
    }

    pub(super) fn push(&mut self, kind: OperationKind, fault: Option<Fault>) {
        self.script(kind).next.push_back(fault);
    }

    /// The fault of the next operation of this kind.
    ///
    /// A random fault depends on the seed, the kind and the number of earlier operations of the kind. So the
    /// operations of one kind have the same faults, whatever other operations come in between.
    pub(super) fn take(&mut self, kind: OperationKind) -> Option<Fault> {
        let (seed, rates, down) = (self.seed, self.rates, self.down);
        let script = self.script(kind);
        let number = script.counts.asked;
        script.counts.asked += 1;
        match script.next.pop_front() {
            Some(scripted) => scripted,
            None if down => Some(Fault::FailBefore),
            None => script.always.or_else(|| rates.draw(&mut generator(seed, kind, number))),
        }
    }
}

fn generator(seed: u64, kind: OperationKind, number: u64) -> Xoshiro256PlusPlus {
    let seeds = BuildHasherDefault::<DefaultHasher>::new();
    Xoshiro256PlusPlus::seed_from_u64(seeds.hash_one((seed, kind, number)))
}
