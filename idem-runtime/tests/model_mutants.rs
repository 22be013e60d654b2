//! Each broken protocol is found out by the model.

mod support;

use support::model::Bounded;
use support::mutants::*;
use support::setup::Setup;

fn found_out<M: Mutant>() {
    let report = Bounded::<M>::new(Setup::wide(M::UNDER)).explore_until_broken(M::BREAKS);
    println!("{report}");
    let found = report.broken.iter().any(|(promise, _)| *promise == M::BREAKS.name());
    assert!(found, "the mutant survives: nothing breaks \"{}\"", M::BREAKS.name());
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
