//! What is judged: a store, how to reach it, and what may be assumed of its clock.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use idem_core::Store;
use idem_runtime::DynStore;

/// Whose clock a store judges by, and so how the kit lets time pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clock {
    /// Tokio's. The kit pauses and advances it.
    Tokio,
    /// Its own. The kit waits.
    Real,
}

/// What the kit may assume of a store.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Profile {
    pub(super) clock: Clock,
    pub(super) short: Duration,
    pub(super) largest_result: usize,
    pub(super) shared: bool,
}

impl Profile {
    /// A store that judges by tokio's clock, as [`MemoryStore`](idem_runtime::MemoryStore) does: time is
    /// paused and advanced, and nothing is waited for.
    pub const fn tokio_clock() -> Self {
        Self { clock: Clock::Tokio, short: Duration::from_secs(2), largest_result: 1 << 20, shared: false }
    }

    /// A store with a clock of its own: the kit waits for the end of short leases, of 80 ms unless
    /// set.
    pub const fn real_clock() -> Self {
        Self { clock: Clock::Real, short: Duration::from_millis(80), ..Self::tokio_clock() }
    }

    /// How long the leases and lifetimes are whose end the kit waits for.
    pub const fn short(mut self, short: Duration) -> Self {
        self.short = short;
        self
    }

    /// The largest result, in bytes, that is tried on a store without a limit of its own; 1 MiB
    /// unless set. A store that has one is tried at its limit and one byte over it.
    pub const fn largest_result(mut self, bytes: usize) -> Self {
        self.largest_result = bytes;
        self
    }

    /// The same, where tokio's clock cannot be paused.
    pub(super) const fn with_running_clock(self) -> Self {
        match self.clock {
            Clock::Tokio => Self { clock: Clock::Real, short: Self::real_clock().short, ..self },
            Clock::Real => self,
        }
    }

    /// Says that others use the same records at the same time, so that the kit cannot count what a
    /// purge deletes. Its own keys are of a scope nobody else has, shared or not.
    pub const fn shared(mut self) -> Self {
        self.shared = true;
        self
    }
}

/// One store to judge, as a factory makes it for each check.
#[must_use]
pub struct Subject {
    pub(super) handles: Vec<DynStore>,
    pub(super) profile: Profile,
    pub(super) kept: Vec<Box<dyn Any + Send>>,
}

impl Subject {
    /// This store, which must be fresh: it holds no record, or none of the kit's.
    pub fn new<S: Store>(store: S, profile: Profile) -> Self {
        Self { handles: vec![DynStore::new(store)], profile, kept: Vec::new() }
    }

    /// Another way to the same records, such as a second connection: the checks that race use all
    /// of them.
    pub fn handle<S: Store>(mut self, another: S) -> Self {
        self.handles.push(DynStore::new(another));
        self
    }

    /// Keeps something until the check is over and the store dropped, such as a temporary folder.
    pub fn keep<G: Any + Send>(mut self, guard: G) -> Self {
        self.kept.push(Box::new(guard));
        self
    }
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject")
            .field("handles", &self.handles.len())
            .field("profile", &self.profile)
            .finish_non_exhaustive()
    }
}
