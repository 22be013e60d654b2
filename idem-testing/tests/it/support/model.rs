//! The model in stateright's form: the properties, and a run.

use std::num::NonZeroU32;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::promise::Promise;
use super::protocol::{OnCrash, Record, State};
use super::setup::Setup;
use super::worker::Ending;
use super::world::{Action, World};

/// After this many transitions without a broken promise, a mutant has survived.
pub const ENOUGH: usize = 1_000_000;

type Condition = fn(&Bounded, &World) -> bool;

/// What to explore: a setup with its bounds and its rules.
pub struct Bounded(pub Setup);

macro_rules! always {
    ($($promise:ident: $words:literal;)*) => {
        vec![$(Property::always($words, |_, world: &World| !world.key.broken().has(Promise::$promise))),*]
    };
}

impl Bounded {
    /// Explores until `until` holds, or until `most` transitions were made, if `most` is not zero. Prints how
    /// much was explored.
    pub fn explored(self, threads: usize, until: HasDiscoveries, most: usize) -> impl Checker<Self> {
        let start = Instant::now();
        let checker = self.checker().threads(threads).finish_when(until).target_state_count(most);
        let run = checker.spawn_bfs().join();
        let (states, steps, depth) = (run.unique_state_count(), run.state_count(), run.max_depth());
        println!("{states} states, {steps} steps, depth {depth}, {:.1?}", start.elapsed());
        run
    }

    /// Situations that must occur. If a situation does not occur, the run proves less than it seems.
    fn possible(&self) -> Vec<Property<Self>> {
        let cautious = self.0.is_cautious();
        let one_body = self.0.max_attempts == NonZeroU32::new(1);
        let all: [(bool, &'static str, Condition); 10] = [
            (true, "a result is replayed", |_, world| world.ended(Ending::Replayed)),
            (true, "a late owner is told that it lost", |_, world| world.ended(Ending::Lost)),
            (!cautious, "a lapsed lease is taken over", |_, world| {
                world.key.record.as_ref().is_some_and(|record| record.recovered)
            }),
            (!cautious && !one_body, "two bodies run, one of them past its lease", |_, world| {
                world.running() > 1
            }),
            (cautious, "a key is in doubt", |_, world| world.ended(Ending::InDoubt)),
            (self.0.steps > 0, "a takeover has the steps of who was taken over", |_, world| {
                let record = world.key.record.as_ref();
                record.is_some_and(|record| record.recovered && !record.steps.is_empty())
            }),
            (cautious && self.0.recovers, "a doubt is settled", |_, world| {
                let record = world.key.record.as_ref();
                record.is_some_and(|record| record.recovered && record.on_crash == OnCrash::InDoubt)
            }),
            (self.0.gives_back, "a claim is given back as if it had not been", |_, world| {
                world.key.record.as_ref().is_some_and(|record| record.attempt == 0)
            }),
            (cautious && self.0.renewals, "the worker of a key in doubt is alive", |_, world| {
                let in_doubt =
                    |record: &Record| record.state == State::InDoubt && world.key.now < record.lease_until;
                world.key.record.as_ref().is_some_and(in_doubt)
            }),
            (self.0.max_attempts.is_some(), "the attempts run out", |_, world| {
                world.ended(Ending::Exhausted)
            }),
        ];
        all.into_iter()
            .filter(|(wanted, ..)| *wanted)
            .map(|(_, name, condition)| Property::sometimes(name, condition))
            .collect()
    }
}

impl Model for Bounded {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        world.actions(&self.0, actions);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        world.next(&self.0, &action)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties: Vec<Property<Self>> = for_each_promise!(always);
        properties.push(Property::always(
            Promise::EveryKeyCanBeResolved.name(),
            |model: &Self, world: &World| {
                !world.key.broken().is_empty() || world.key.can_be_resolved(model.0.rules)
            },
        ));
        properties.extend(self.possible());
        properties
    }
}
