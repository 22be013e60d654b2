//! Tests that the model check detects each broken protocol.

use crate::support;

use support::model::Bounded;
use support::mutants::*;
use support::promise::Promise;
use support::rules::Shipped;
use support::setup::{Setup, Under};

fn found_out<M: Mutant>() {
    let report = Bounded::<M>::new(Setup::wide(M::UNDER)).explore_until_broken(M::BREAKS);
    println!("{report}");
    let found = report.broken.iter().any(|(promise, _)| *promise == M::BREAKS.name());
    assert!(found, "the mutant survives: nothing breaks \"{}\"", M::BREAKS.name());
}

#[test]
fn the_shipped_rules_survive_where_the_mutants_are_found() {
    let all = [
        Under::Rerun,
        Under::InDoubt,
        Under::Steps,
        Under::Settled,
        Under::Plain,
        Under::GivenBack,
        Under::OneAttempt,
        Under::Alive,
    ];
    for under in all {
        let report = Bounded::<Shipped>::new(Setup::wide(under)).explore_enough();
        assert!(report.broken.is_empty(), "{report}");
    }
}

macro_rules! promises {
    ($($test:ident: $mutant:ident, $promise:ident, $policy:ident;)*) => { [$($mutant::BREAKS),*] };
}

#[test]
fn each_promise_is_broken_by_a_mutant() {
    let broken = for_each_mutant!(promises);
    for promise in Promise::ALL {
        assert!(broken.contains(&promise), "no mutant shows that the model watches \"{}\"", promise.name());
    }
}

macro_rules! tests {
    ($($test:ident: $mutant:ident, $promise:ident, $policy:ident;)*) => {
        $(
            #[test]
            fn $test() {
                found_out::<$mutant>();
            }
        )*
    };
}

for_each_mutant!(tests);
