//! What a run of the model covers, and its bounds.

use super::protocol::{Claim, Fingerprint, OnCrash, Owner};
use super::rules::Rules;
use std::num::NonZeroU32;
use std::time::Duration;

/// The clock counts microseconds from zero, and all durations are a few microseconds. It only matters which
/// duration ends first, and that some fences come from the clock and others from the last fence.
pub const LEASE: Duration = Duration::from_micros(2);
pub const TTL: Duration = Duration::from_micros(2);
pub const RETRY: Duration = Duration::from_micros(1);

const ARGUMENTS: Fingerprint = Fingerprint::from_bytes([1; 32]);
const OTHER_ARGUMENTS: Fingerprint = Fingerprint::from_bytes([2; 32]);

/// The setups in which the model looks for mutants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// The events of `Plain`, late copies of requests, other arguments, `forget`, and a limit of attempts.
    Rerun,
    /// The events of `Plain` and operators, under `in_doubt`.
    InDoubt,
    /// Bodies have steps, under both policies.
    Steps,
    /// As `Rerun`, but under `in_doubt`, without `forget` and renewals. Callers recover, or go away before
    /// their bodies start.
    Settled,
    /// Only claims, results, releases, renewals and purges.
    Plain,
    /// Callers go away before their bodies start.
    GivenBack,
    /// A body has one step, and a key has one attempt.
    OneAttempt,
    /// Three workers under `in_doubt`. Only the last one recovers, and a worker in doubt may be alive.
    Alive,
}

impl Under {
    pub const ALL: [Self; 8] = [
        Self::Rerun,
        Self::InDoubt,
        Self::Steps,
        Self::Settled,
        Self::Plain,
        Self::GivenBack,
        Self::OneAttempt,
        Self::Alive,
    ];
}

/// The bounds of a run. An event with the bound zero or `false` does not happen.
#[derive(Clone, Debug)]
pub struct Setup {
    pub rules: Rules,
    /// The crash policy of each worker.
    pub workers: Vec<OnCrash>,
    /// How many calls each worker makes, one after another, each as a new owner.
    pub lives: u8,
    /// The time at which the clock stops.
    pub end: u64,
    pub max_attempts: Option<NonZeroU32>,
    /// How many copies of requests may stay in the network and arrive late.
    pub late: usize,
    /// Whether a claim may come with other arguments.
    pub other_arguments: bool,
    /// Whether bodies end in terminal errors too.
    pub failures: bool,
    pub renewals: bool,
    pub purges: bool,
    pub resolutions: u8,
    /// How many steps a body has; it may run them in any order.
    pub steps: u32,
    /// Whether callers recover: they find out what an earlier run did, or report that they cannot.
    pub recovers: bool,
    /// Whether only the last worker can recover.
    pub first_cannot: bool,
    /// Whether callers go away before they start the body.
    pub gives_back: bool,
    pub forgets: u8,
    /// How many times the store's clock steps back.
    pub steps_back: u8,
    /// Whether worlds that differ only in the names of equal workers count as one. If they do, the history of
    /// a broken promise is hard to read, because workers change places.
    pub symmetric: bool,
}

impl Setup {
    pub fn new(workers: &[OnCrash]) -> Self {
        Self {
            rules: Rules::SHIPPED,
            workers: workers.to_vec(),
            lives: 2,
            end: 5,
            max_attempts: None,
            late: 0,
            other_arguments: false,
            failures: false,
            renewals: true,
            purges: true,
            resolutions: 1,
            steps: 0,
            recovers: false,
            first_cannot: false,
            gives_back: false,
            forgets: 0,
            steps_back: 0,
            symmetric: true,
        }
    }

    /// Two or three workers, and only the events that the mutants of this setup need, because each further
    /// event makes the search longer. Most setups are too large to explore completely.
    pub fn wide(under: Under) -> Self {
        let everything = |policy| Self {
            max_attempts: NonZeroU32::new(2),
            late: 1,
            other_arguments: true,
            forgets: 1,
            ..Self::new(&[policy; 2])
        };
        match under {
            Under::Rerun => everything(OnCrash::Rerun),
            Under::InDoubt => Self::new(&[OnCrash::InDoubt; 2]),
            Under::Steps => Self {
                steps: 2,
                late: 1,
                renewals: false,
                max_attempts: NonZeroU32::new(2),
                ..Self::new(&[OnCrash::Rerun, OnCrash::InDoubt])
            },
            Under::Settled => {
                let events = everything(OnCrash::InDoubt);
                Self { recovers: true, gives_back: true, renewals: false, forgets: 0, ..events }
            }
            Under::Plain => Self::new(&[OnCrash::Rerun; 2]),
            Under::GivenBack => Self {
                gives_back: true,
                other_arguments: true,
                renewals: false,
                ..Self::new(&[OnCrash::Rerun; 2])
            },
            Under::OneAttempt => Self {
                steps: 1,
                max_attempts: NonZeroU32::new(1),
                renewals: false,
                ..Self::new(&[OnCrash::Rerun; 2])
            },
            Under::Alive => Self {
                recovers: true,
                first_cannot: true,
                symmetric: false,
                lives: 1,
                purges: false,
                ..Self::new(&[OnCrash::InDoubt; 3])
            },
        }
    }

    pub fn is_cautious(&self) -> bool {
        self.workers.contains(&OnCrash::InDoubt)
    }

    pub fn claim(&self, owner: Owner, other_arguments: bool) -> Claim {
        let worker = usize::from(owner.as_bytes()[0]) - 1;
        Claim::new(owner, LEASE, TTL)
            .with_fingerprint(Some(if other_arguments { OTHER_ARGUMENTS } else { ARGUMENTS }))
            .with_on_crash(self.workers[worker])
            .with_max_attempts(self.max_attempts)
            .with_recovers(self.recovers && (!self.first_cannot || worker + 1 == self.workers.len()))
    }
}
