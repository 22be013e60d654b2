//! The promises of the protocol, checked over random histories that are longer than the model check explores.
//!
//! The workers, the events and the checks of the promises (`Shadow`) are the same as in the model check.

use std::num::NonZeroU32;

use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::protocol::OnCrash::{InDoubt, Rerun};
use crate::support::protocol::Timestamp;
use crate::support::setup::Setup;
use crate::support::world::{Action, World};

/// All events at once, and workers of both policies.
fn every_event(most: Option<u32>, recovers: bool, first_cannot: bool) -> Setup {
    Setup {
        lives: 20,
        max_attempts: most.and_then(NonZeroU32::new),
        late: 3,
        other_arguments: true,
        failures: true,
        resolutions: 4,
        steps: 2,
        recovers,
        first_cannot,
        gives_back: true,
        forgets: 2,
        steps_back: 2,
        symmetric: false,
        ..Setup::new(&[Rerun, Rerun, InDoubt, InDoubt])
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// The clock starts high or at zero. So in some histories the fences come from the clock, and in others
    /// from the last fence.
    #[test]
    fn no_history_breaks_a_promise(
        start in prop_oneof![Just(0), Just(1_000_000)],
        most in prop::option::of(1..4_u32),
        (recovers, first_cannot) in any::<(bool, bool)>(),
        choices in prop::collection::vec(any::<Index>(), 1..300),
    ) {
        let setup = every_event(most, recovers, first_cannot);
        let (mut world, mut history) = (World::new(&setup), Vec::new());
        world.key.now = Timestamp::from_micros(start);
        for choice in choices {
            // Three ticks, so that time passes often enough for leases to end.
            let mut actions = vec![Action::Tick; 3];
            world.actions(&setup, &mut actions);
            history.push(choice.get(&actions).clone());
            let Some(next) = history.last().and_then(|action| world.next(&setup, action)) else { continue };
            world = next;
            let broken = world.key.broken();
            prop_assert!(broken.is_empty(), "{history:?} broke {broken:?}: {:?}", world.key);
            prop_assert!(world.key.can_be_resolved(setup.rules), "{history:?}: {:?}", world.key);
        }
    }
}
