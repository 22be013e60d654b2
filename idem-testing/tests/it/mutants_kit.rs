//! Tests that the conformance kit detects each mutant of the protocol's rules, on a store that is otherwise
//! correct.

use idem_testing::conformance::{Check, Profile, Subject, all};

use crate::support::mutants;
use crate::support::rules::{self, Rules};
use crate::support::rules_store::RulesStore;

/// The checks of a store without listing. The checks that race come last, because they take real time.
fn checks() -> Vec<&'static Check> {
    let mut checks: Vec<_> = all().iter().filter(|check| check.theme() != "listing").collect();
    checks.sort_by_key(|check| matches!(check.theme(), "races" | "duels"));
    checks
}

fn violates(check: &Check, rules: Rules) -> bool {
    let subject = move || async move { Subject::new(RulesStore::new(rules), Profile::tokio_clock()) };
    check.run(subject).is_err()
}

fn found_out(rules: Rules) {
    let check = checks().into_iter().find(|check| violates(check, rules));
    let check = check.expect("the mutant survives the whole kit");
    println!("found by {}", check.name());
}

#[test]
fn the_shipped_rules_pass_on_the_store_that_the_mutants_use() {
    let broken: Vec<_> = checks().into_iter().filter(|check| violates(check, Rules::SHIPPED)).collect();
    assert!(broken.is_empty(), "{broken:?}");
}

macro_rules! tests {
    ($($mutant:ident: $promise:ident, $under:ident, $only:ident, $rule:ident $(, $field:ident = $value:expr)?;)*) => {
        $(
            #[test]
            fn $mutant() {
                found_out(Rules { $($field: $value,)? ..Rules::broken(rules::$only, mutants::$rule) });
            }
        )*
    };
}

for_each_mutant!(tests);
