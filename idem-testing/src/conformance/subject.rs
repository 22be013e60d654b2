//! The subject of a check: a store, its handles, and assumptions about its clock.

use std::any::Any;
use std::num::NonZeroUsize;
use std::time::Duration;

use idem_core::Store;
use idem_runtime::DynStore;

/// Which clock a store uses. This decides how the kit lets time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Tokio's clock. The kit pauses and advances it.
    Tokio,
    /// The store's own clock. The kit waits.
    Real,
}

/// What the kit may assume about a store.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Profile {
    pub(super) clock: Clock,
    pub(super) short: Duration,
    one_in: usize,
}

impl Profile {
    /// A store that uses tokio's clock, as [`MemoryStore`](idem_runtime::MemoryStore) does: the kit pauses
    /// and advances time and does not wait. Only the races and duels need a running clock, so they wait.
    pub const fn tokio_clock() -> Self {
        Self { clock: Clock::Tokio, short: Duration::from_secs(2), one_in: 1 }
    }

    /// A store with its own clock: the kit waits for the end of short leases. A short lease lasts 80 ms,
    /// unless [`short`](Self::short) sets another time.
    pub const fn real_clock() -> Self {
        Self { clock: Clock::Real, short: Duration::from_millis(80), ..Self::tokio_clock() }
    }

    /// Sets the length of the leases and lifetimes whose end the kit waits for.
    pub const fn short(mut self, short: Duration) -> Self {
        self.short = short;
        self
    }

    /// Makes the long checks shorter by the factor `one_in`. Of the thousands of short traces, the kit runs
    /// one of every `one_in`; the [`seed`](crate::seed) decides which. The random history has fewer
    /// operations. The duels use fewer keys (at least 16), the races have fewer callers (at least 40), and
    /// the longest record has fewer steps (at least 200).
    ///
    /// Use a sample for a slow server, such as an emulator. Also use it for a second path to a store, if
    /// another test checks the store in full.
    ///
    /// `IDEM_SAMPLE=n` in the environment multiplies `one_in` by `n` for every store with its own clock.
    pub const fn sample(mut self, one_in: usize) -> Self {
        self.one_in = if one_in == 0 { 1 } else { one_in };
        self
    }

    /// The `n` if the kit runs one of every `n` cases.
    pub(super) fn one_in(&self) -> usize {
        self.one_in_with(std::env::var("IDEM_SAMPLE").ok().as_deref())
    }

    /// The result of [`one_in`](Self::one_in) if `IDEM_SAMPLE` has this value.
    pub(super) fn one_in_with(&self, sample: Option<&str>) -> usize {
        let further = sample.filter(|_| self.clock == Clock::Real).and_then(|text| text.trim().parse().ok());
        self.one_in * further.map_or(1, NonZeroUsize::get)
    }

    /// How many of `all` cases the kit runs: one in `self.one_in()`, but at least `least`.
    pub(super) fn part_of(&self, all: usize, least: usize) -> usize {
        (all / self.one_in()).max(least)
    }

    /// The same profile, for checks in which tokio's clock cannot be paused.
    pub(super) const fn with_running_clock(self) -> Self {
        match self.clock {
            Clock::Tokio => Self { clock: Clock::Real, short: Self::real_clock().short, ..self },
            Clock::Real => self,
        }
    }
}

/// One store to check. A factory makes a new one for each check.
#[must_use]
pub struct Subject {
    pub(super) handles: Vec<DynStore>,
    pub(super) profile: Profile,
    pub(super) kept: Vec<Box<dyn Any + Send>>,
}

impl Subject {
    /// A subject with this store. The store must hold no expired records, because the checks of purges count
    /// the deleted records.
    pub fn new<S: Store>(store: S, profile: Profile) -> Self {
        Self { handles: vec![DynStore::new(store)], profile, kept: Vec::new() }
    }

    /// Adds another handle to the same records, such as a second connection. The races, the duels, the short
    /// traces and the random history use all handles.
    pub fn handle<S: Store>(mut self, another: S) -> Self {
        self.handles.push(DynStore::new(another));
        self
    }

    /// Keeps a guard, such as a temporary folder, until the check is over and the store is dropped.
    pub fn keep<G: Any + Send>(mut self, guard: G) -> Self {
        self.kept.push(Box::new(guard));
        self
    }
}
