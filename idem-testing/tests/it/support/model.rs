//! The model in stateright's form: the properties, a run, and its report.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::promise::Promise;
use super::protocol::{OnCrash, Record, State};
use super::setup::Setup;
use super::worker::Ending;
use super::world::{Action, World};

/// After this many steps without a broken promise, a mutant has survived.
const ENOUGH: usize = 1_000_000;

type Condition = fn(&Bounded, &World) -> bool;

/// What to explore: a setup with its bounds and its rules.
pub struct Bounded(pub Setup);

/// The report of a run.
#[derive(Debug)]
pub struct Report {
    pub name: &'static str,
    pub states: usize,
    pub steps: usize,
    pub depth: usize,
    pub time: Duration,
    /// The broken promises, each with the actions that led there.
    pub broken: Vec<(&'static str, Vec<Action>)>,
    /// The situations that should be possible and never occurred.
    pub unseen: Vec<&'static str>,
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, states, steps, depth, time, broken, unseen } = self;
        write!(f, "{name}: {states} states, {steps} steps, depth {depth}, {:.1} s", time.as_secs_f64())?;
        for (promise, history) in broken {
            write!(f, "\n  broken: {promise}, by {history:?}")?;
        }
        for wanted in unseen {
            write!(f, "\n  never seen: {wanted}")?;
        }
        Ok(())
    }
}

impl Report {
    fn of(name: &'static str, start: Instant, run: &impl Checker<Bounded>) -> Self {
        let mut report = Self {
            name,
            states: run.unique_state_count(),
            steps: run.state_count(),
            depth: run.max_depth(),
            time: start.elapsed(),
            broken: Vec::new(),
            unseen: Vec::new(),
        };
        for property in run.model().properties() {
            match (property.expectation.discovery_is_failure(), run.discovery(property.name)) {
                (true, Some(path)) => report.broken.push((property.name, path.into_actions())),
                (false, None) => report.unseen.push(property.name),
                _ => {}
            }
        }
        report
    }
}

macro_rules! always {
    ($($promise:ident: $words:literal;)*) => {
        vec![$(Property::always($words, |_, world: &World| !world.key.broken().has(Promise::$promise))),*]
    };
}

impl Bounded {
    /// Explores everything within the bounds.
    pub fn explore(self, threads: usize) -> Report {
        self.run(threads, HasDiscoveries::All, 0)
    }

    /// Explores until this promise is broken, or for at most [`ENOUGH`] steps.
    pub fn explore_until_broken(self, promise: Promise) -> Report {
        self.run(1, HasDiscoveries::AllOf([promise.name()].into()), ENOUGH)
    }

    /// Explores where most mutants are found. The other explorations of these rules are complete within their bounds.
    pub fn explore_enough(self) -> Report {
        self.run(1, HasDiscoveries::All, ENOUGH / 4)
    }

    /// Explores until `until`, or for at most `most` steps if that is not zero.
    fn run(self, threads: usize, until: HasDiscoveries, most: usize) -> Report {
        let (name, start) = (self.0.name, Instant::now());
        let checker = self.checker().threads(threads).finish_when(until).target_state_count(most);
        Report::of(name, start, &checker.spawn_bfs().join())
    }

    /// Situations that must occur. If one does not, the run proves less than it seems.
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
