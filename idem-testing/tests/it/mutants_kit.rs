//! Tests that the conformance kit detects each broken protocol, on a store that is correct except for the rules.

use crate::support;

use idem_testing::conformance::{Check, Profile, Subject, all};

use support::mutants::*;
use support::rules::{Rules, Shipped};
use support::rules_store::RulesStore;

/// The checks, with those that race last, because they take real time.
fn checks() -> Vec<&'static Check> {
    let mut checks: Vec<_> = all().iter().collect();
    checks.sort_by_key(|check| matches!(check.theme(), "races" | "duels"));
    checks
}

fn violates<R: Rules>(check: &Check) -> bool {
    let subject = || async { Subject::new(RulesStore::<R>::new(), Profile::tokio_clock()) };
    check.run(subject).is_err()
}

fn found_out<M: Mutant>() {
    let check = checks().into_iter().find(|check| violates::<M>(check));
    let check = check.expect("the mutant survives the whole kit");
    println!("found by {}", check.name());
}

#[test]
fn the_shipped_rules_pass_on_the_store_that_the_mutants_use() {
    let broken: Vec<_> = checks().into_iter().filter(|check| violates::<Shipped>(check)).collect();
    assert!(broken.is_empty(), "{broken:?}");
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
