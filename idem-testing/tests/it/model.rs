//! Model check of the shipped protocol with stateright. No interleaving of workers, network, clock,
//! housekeeping and operators breaks a promise. From every state, the key can get a recorded result.
//!
//! Without `IDEM_MODEL=full` the bounds are small. See `docs/internals/model.md`.

use crate::support;

use std::num::NonZeroU32;

use stateright::{Checker as _, HasDiscoveries};
use support::model::Bounded;
use support::protocol::OnCrash::{self, InDoubt, Rerun};
use support::setup::Setup;

/// Explores `reduced` completely, or `full` with `IDEM_MODEL=full` in the environment. Fails if a situation
/// that must occur does not occur, because then the bounds are too narrow to prove much.
fn explore(reduced: Setup, full: Setup) {
    let is_full = std::env::var("IDEM_MODEL").is_ok_and(|run| run == "full");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let bounded = Bounded(if is_full { full } else { reduced });
    bounded.explored(threads, HasDiscoveries::All, 0).assert_properties();
}

/// One call of each worker.
fn one_call(workers: &[OnCrash]) -> Setup {
    Setup { lives: 1, ..Setup::new(workers) }
}

#[test]
fn two_workers_that_rerun() {
    explore(one_call(&[Rerun; 2]), Setup { end: 7, failures: true, ..Setup::new(&[Rerun; 2]) });
}

#[test]
fn two_workers_under_in_doubt() {
    let full = Setup { resolutions: 2, late: 1, end: 4, ..Setup::new(&[InDoubt; 2]) };
    explore(one_call(&[InDoubt; 2]), full);
}

#[test]
fn requests_that_arrive_late() {
    let reduced = Setup { end: 4, late: 1, renewals: false, ..one_call(&[Rerun; 2]) };
    explore(reduced, Setup { late: 1, ..Setup::new(&[Rerun; 2]) });
}

#[test]
fn operators_that_forget_and_a_clock_that_steps_back() {
    let bounds = Setup { forgets: 1, steps_back: 1, ..one_call(&[Rerun; 2]) };
    let reduced = Setup { end: 3, renewals: false, ..bounds.clone() };
    explore(reduced, Setup { late: 1, ..bounds });
}

#[test]
fn other_arguments_and_a_limit_of_attempts() {
    let bounds = Setup {
        other_arguments: true,
        max_attempts: NonZeroU32::new(2),
        failures: true,
        ..Setup::new(&[Rerun; 2])
    };
    explore(Setup { end: 3, renewals: false, failures: false, ..bounds.clone() }, bounds);
}

#[test]
fn bodies_of_two_steps() {
    let bounds = Setup { steps: 2, ..one_call(&[Rerun; 2]) };
    let full = Setup { late: 1, lives: 2, steps: 2, end: 4, ..bounds.clone() };
    explore(Setup { end: 4, renewals: false, ..bounds }, full);
}

#[test]
fn callers_that_settle_doubts() {
    let bounds = Setup { recovers: true, gives_back: true, ..one_call(&[InDoubt; 2]) };
    let full = Setup { steps: 1, late: 1, end: 4, ..bounds.clone() };
    explore(Setup { end: 3, late: 1, renewals: false, ..bounds }, full);
}

#[test]
fn doubts_settled_under_a_limit_of_attempts() {
    let max_attempts = NonZeroU32::new(2);
    let bounds = Setup { recovers: true, max_attempts, renewals: false, ..Setup::new(&[InDoubt; 2]) };
    let reduced = Setup { end: 2, purges: false, resolutions: 0, ..bounds.clone() };
    explore(reduced, Setup { other_arguments: true, end: 4, ..bounds });
}

#[test]
fn recovery_past_the_limit_of_attempts() {
    let max_attempts = NonZeroU32::new(1);
    let bounds = Setup { recovers: true, max_attempts, renewals: false, ..Setup::new(&[Rerun; 2]) };
    let reduced = Setup { end: 3, purges: false, lives: 1, ..bounds.clone() };
    explore(reduced, Setup { late: 1, end: 4, gives_back: true, ..bounds });
}

#[test]
fn callers_that_go_away_before_the_body() {
    let bounds = Setup { gives_back: true, late: 1, ..one_call(&[Rerun, InDoubt]) };
    let full = Setup { lives: 2, end: 3, ..bounds.clone() };
    explore(Setup { end: 3, renewals: false, ..bounds }, full);
}

#[test]
fn workers_in_doubt_that_are_alive() {
    let bounds = Setup {
        recovers: true,
        first_cannot: true,
        symmetric: false,
        purges: false,
        resolutions: 0,
        ..one_call(&[InDoubt; 3])
    };
    explore(Setup { end: 2, ..bounds.clone() }, Setup { steps: 1, resolutions: 1, end: 4, ..bounds });
}

#[test]
fn three_workers_under_in_doubt() {
    let bounds = Setup { end: 4, ..one_call(&[InDoubt; 3]) };
    explore(Setup { end: 3, renewals: false, ..bounds.clone() }, Setup { late: 1, resolutions: 2, ..bounds });
}

#[test]
fn three_workers_of_different_policies() {
    let max_attempts = NonZeroU32::new(2);
    let bounds = Setup { max_attempts, other_arguments: true, ..one_call(&[Rerun, InDoubt, InDoubt]) };
    explore(Setup { end: 2, renewals: false, other_arguments: false, ..bounds.clone() }, bounds);
}
