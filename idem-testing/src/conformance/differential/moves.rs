//! Draws operations from a seed, so that most of them find a key in an interesting state.

use std::num::NonZeroU32;
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::asking::Ask;
use super::oracle::Oracle;
use crate::Fault;
use idem_core::RecordKey;
use idem_core::protocol::{
    Claim, Complete, Fence, Fingerprint, OnCrash, Owner, Record, RecordStep, RecordedStep, Release,
    ReleaseCause, Renew, Request, Resolution, State, StoredResult, Tombstone, Verdict,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Draws operations.
pub(super) struct Gambler {
    rng: Xoshiro256PlusPlus,
    keys: Vec<RecordKey>,
    owners: Vec<Owner>,
    /// The grants that were seen, newest last. Their requests may come late.
    grants: Vec<(RecordKey, Owner, Fence)>,
    /// Whether time passes only by [`pause`](Self::pause).
    exact: bool,
}

impl Gambler {
    pub(super) fn new(seed: u64, keys: Vec<RecordKey>, exact: bool) -> Self {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let owners = (0..5).map(|_| Owner::from_bytes(rng.random())).collect();
        Self { rng, keys, owners, grants: Vec::new(), exact }
    }

    pub(super) fn below(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count)
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    /// Remembers the owner of a key.
    pub(super) fn learn(&mut self, key: &RecordKey, record: &Record) {
        let grant = (key.clone(), record.owner, record.fence);
        if self.grants.last() != Some(&grant) {
            self.grants.retain(|known| *known != grant);
            self.grants.push(grant);
        }
        if self.grants.len() > 24 {
            self.grants.remove(0);
        }
    }

    /// How much time passes: none, little, much, or until an edge, or just before or after it.
    pub(super) fn pause(&mut self, edges: &[Duration]) -> Duration {
        let micro = Duration::from_micros(1);
        match self.below(8) {
            0..=2 => Duration::ZERO,
            3 => micro,
            4 => Duration::from_secs(self.rng.random_range(0..30)),
            5 => HOUR,
            _ if edges.is_empty() => micro,
            _ => {
                // Mostly one of the nearest edges.
                let nearest = self.rng.random_range(0..edges.len().min(3));
                let edge = edges[nearest];
                self.one_of(&[edge, edge, edge.saturating_sub(micro), edge + micro])
            }
        }
    }

    /// The fault of the operation, mostly none.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        match self.below(20) {
            0 => Some(Fault::FailBefore),
            1 | 2 => Some(Fault::FailAfter),
            _ => None,
        }
    }

    /// A random length of time. On a real clock it is over at once or never during the test.
    fn length(&mut self) -> Duration {
        if self.exact {
            let seconds = self.one_of(&[0, 1, 5, 20, 3_600]);
            Duration::from_secs(seconds) + Duration::from_micros(self.rng.random_range(0..2))
        } else if self.chance(3) {
            Duration::ZERO
        } else {
            HOUR * self.rng.random_range(1..6)
        }
    }

    /// A random lifetime of a record, mostly longer than any other time.
    fn lifetime(&mut self) -> Duration {
        match self.below(4) {
            0 if self.exact => self.length(),
            0 => Duration::ZERO,
            _ => HOUR * self.rng.random_range(24..30),
        }
    }

    pub(super) fn draw(&mut self, oracle: &Oracle) -> (RecordKey, Ask) {
        let keys = self.keys.clone();
        let mut key = self.one_of(&keys);
        let state = oracle.record(&key).map(|record| record.state);
        let ask = match self.below(40) {
            // A key in doubt or with a result stays so; the states before that are more interesting.
            _ if state == Some(State::InDoubt) && self.chance(3) => Ask::Step(self.word().into()),
            _ if matches!(state, Some(State::Completed | State::Failed)) && self.chance(5) => Ask::Forget,
            0..=15 => Ask::Step(self.claim().into()),
            16..=35 => {
                let (of, owner, fence) = self.grant(&key, oracle);
                key = of;
                let steps = oracle.record(&key).map(|record| record.steps.clone()).unwrap_or_default();
                Ask::Step(self.by_owner(owner, fence, &steps))
            }
            36 => Ask::Step(self.word().into()),
            37 => Ask::Forget,
            38 => Ask::Get,
            _ => Ask::Purge(self.one_of(&[0, 1, 2, 100])),
        };
        (key, ask)
    }

    fn claim(&mut self) -> Claim {
        let owners = self.owners.clone();
        let owner = if self.chance(3) { self.one_of(&owners) } else { Owner::from_bytes(self.rng.random()) };
        Claim::new(owner, self.length(), self.lifetime())
            .with_fingerprint(self.fingerprint())
            .with_on_crash(self.one_of(&[OnCrash::Rerun, OnCrash::Rerun, OnCrash::Rerun, OnCrash::InDoubt]))
            .with_max_attempts(NonZeroU32::new(self.one_of(&[0, 0, 0, 1, 2, 4])))
            .with_recovers(self.chance(3))
    }

    /// A random fingerprint: none, mostly the same, and sometimes one that differs at its end.
    fn fingerprint(&mut self) -> Option<Fingerprint> {
        let last = self.one_of(&[0, 0, 1, 1, 1, 2]);
        let mut bytes = [7; 32];
        bytes[31] = last;
        (last > 0).then_some(Fingerprint::from_bytes(bytes))
    }

    /// The key, owner and fence of a request: mostly those of the current owner, sometimes of an old one, or wrong
    /// ones.
    fn grant(&mut self, key: &RecordKey, oracle: &Oracle) -> (RecordKey, Owner, Fence) {
        let current = oracle.record(key).map(|record| (key.clone(), record.owner, record.fence));
        let grants = self.grants.clone();
        let (key, owner, fence) = match current {
            Some(current) if !self.chance(4) => current,
            _ if grants.is_empty() => (key.clone(), Owner::from_bytes([1; 16]), Fence::new(1)),
            _ => self.one_of(&grants),
        };
        match self.below(20) {
            0 => (key, Owner::from_bytes(self.rng.random()), fence),
            1 => (key, owner, Fence::new(fence.get().saturating_add(1))),
            2 => (key, owner, Fence::new(fence.get().saturating_sub(1))),
            _ => (key, owner, fence),
        }
    }

    fn by_owner(&mut self, owner: Owner, fence: Fence, steps: &[RecordedStep]) -> Request {
        match self.below(9) {
            0 | 1 => Request::Renew(Renew::new(owner, fence, self.length())),
            2 | 3 => Request::Complete(Complete::new(
                owner,
                fence,
                self.one_of(&[Verdict::Completed, Verdict::Failed]),
                self.result(),
                self.lifetime(),
            )),
            4..=6 => Request::RecordStep(self.recording(owner, fence, steps)),
            _ => Request::Release(
                Release::new(
                    owner,
                    fence,
                    self.one_of(&[
                        ReleaseCause::Failed,
                        ReleaseCause::Failed,
                        ReleaseCause::Abandoned,
                        ReleaseCause::Unused,
                        ReleaseCause::Doubtful,
                        ReleaseCause::NothingHappened,
                    ]),
                )
                .with_retry_after(if self.chance(2) {
                    Duration::ZERO
                } else {
                    self.length()
                }),
            ),
        }
    }

    /// A random step: mostly the next one; sometimes a recorded one, another one at its position, or one at a position
    /// too far on.
    fn recording(&mut self, owner: Owner, fence: Fence, steps: &[RecordedStep]) -> RecordStep {
        let step = RecordedStep::new(
            self.one_of(&["a", "A", "a\0", "", "\u{e4}"]).to_owned(),
            self.fingerprint(),
            self.result(),
        );
        let next = steps.len();
        let (position, step) = match self.below(6) {
            0 if next > 0 => {
                let position = self.below(next);
                (position, if self.chance(2) { step } else { steps[position].clone() })
            }
            1 => (next + 1, step),
            _ => (next, step),
        };
        RecordStep::new(owner, fence, u32::try_from(position).unwrap_or(u32::MAX), step)
    }

    fn result(&mut self) -> StoredResult {
        if self.chance(6) {
            return StoredResult::Tombstone(self.one_of(&[Tombstone::TooLarge, Tombstone::NotEncodable]));
        }
        let length = self.one_of(&[0, 1, 16, 300]);
        StoredResult::Value((0..length).map(|_| self.rng.random::<u8>()).collect())
    }

    fn word(&mut self) -> Resolution {
        if self.chance(2) {
            return Resolution::Release;
        }
        let verdict = self.one_of(&[Verdict::Completed, Verdict::Failed]);
        Resolution::Record(verdict, self.result())
    }
}
