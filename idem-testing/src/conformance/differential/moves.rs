//! Draws random operations from a seed. Most operations are requests of `alphabet`. Such a request depends on
//! the current record of the key.

use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::alphabet::{self, Scene, Symbol};
use super::asking::Ask;
use super::oracle::Oracle;
use crate::Fault;
use idem_core::RecordKey;
use idem_core::protocol::{Fence, Owner, Record, State};

const HOUR: Duration = Duration::from_secs(60 * 60);

pub(super) struct Gambler {
    rng: Xoshiro256PlusPlus,
    keys: Vec<RecordKey>,
    symbols: Vec<Symbol>,
    /// The grants that were seen, newest last. Late requests use one of these grants.
    grants: Vec<(RecordKey, Owner, Fence)>,
}

impl Gambler {
    pub(super) fn new(seed: u64, keys: Vec<RecordKey>) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { rng, keys, symbols: alphabet::all(), grants: Vec::new() }
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

    /// Adds the grant of `record` to the last 24 grants.
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

    /// Draws how much time passes: none, little, much, or the time until a nearby edge, exactly or with a
    /// microsecond more or less. An edge is a moment at which a lease, a lifetime or a backoff ends.
    pub(super) fn pause(&mut self, edges: &[Duration]) -> Duration {
        let micro = Duration::from_micros(1);
        match self.below(8) {
            0..=2 => Duration::ZERO,
            3 => micro,
            4 => Duration::from_secs(self.rng.random_range(0..30)),
            5 => HOUR,
            _ if edges.is_empty() => micro,
            _ => {
                // The list is sorted, so this is one of the three nearest edges.
                let nearest = self.rng.random_range(0..edges.len().min(3));
                let edge = edges[nearest];
                self.one_of(&[edge, edge, edge.saturating_sub(micro), edge + micro])
            }
        }
    }

    /// Draws the fault of an operation. Most operations have none.
    pub(super) fn fault(&mut self) -> Option<Fault> {
        match self.below(20) {
            0 => Some(Fault::FailBefore),
            1 | 2 => Some(Fault::FailAfter),
            _ => None,
        }
    }

    /// Draws a key and an operation. Few operations come from a sender that does not hold the claim, because
    /// the store refuses all operations of such a sender.
    pub(super) fn draw(&mut self, oracle: &Oracle) -> (RecordKey, Ask) {
        let number = self.below(self.keys.len());
        let key = self.keys[number].clone();
        let record = oracle.record(&key);
        let is_over = record.is_some_and(|record| matches!(record.state, State::Completed | State::Failed));
        let ask = match self.below(20) {
            _ if is_over && self.chance(5) => Ask::Forget,
            0 => Ask::Purge(self.one_of(&[0, 1, 2, 100])),
            _ => {
                let current = record.map(|record| record.fence);
                let old = |(of, _, fence): &&(RecordKey, Owner, Fence)| *of == key && Some(*fence) != current;
                let previous: Vec<_> =
                    self.grants.iter().filter(old).map(|(_, owner, fence)| (*owner, *fence)).collect();
                let previous = (!previous.is_empty()).then(|| self.one_of(&previous));
                let may_be_foreign = self.chance(5);
                let drawn = loop {
                    let number = self.below(self.symbols.len());
                    if may_be_foreign || !self.symbols[number].foreign {
                        break number;
                    }
                };
                self.symbols[drawn].ask(&Scene { record, previous })
            }
        };
        (key, ask)
    }
}
