//! Tests that the model check detects each broken protocol.

use crate::support::model::Bounded;
use crate::support::mutants;
use crate::support::promise::Promise;
use crate::support::rules::{self, Rules};
use crate::support::setup::{Setup, Under};

fn found_out(rules: Rules, breaks: Promise, under: Under) {
    let report = Bounded(Setup { rules, ..Setup::wide(under) }).explore_until_broken(breaks);
    println!("{report}");
    let found = report.broken.iter().any(|(promise, _)| *promise == breaks.name());
    assert!(found, "the mutant survives: nothing breaks \"{}\"", breaks.name());
}

#[test]
fn the_shipped_rules_survive_where_the_mutants_are_found() {
    for under in Under::ALL {
        let report = Bounded(Setup::wide(under)).explore_enough();
        assert!(report.broken.is_empty(), "{report}");
    }
}

macro_rules! promises {
    ($($mutant:ident: $promise:ident, $under:ident, $only:ident, $rule:ident $(, $field:ident = $value:expr)?;)*) => {
        [$(Promise::$promise),*]
    };
}

#[test]
fn each_promise_is_broken_by_a_mutant() {
    let broken = for_each_mutant!(promises);
    for promise in Promise::ALL {
        assert!(broken.contains(promise), "no mutant shows that the model watches \"{}\"", promise.name());
    }
}

macro_rules! tests {
    ($($mutant:ident: $promise:ident, $under:ident, $only:ident, $rule:ident $(, $field:ident = $value:expr)?;)*) => {
        $(
            #[test]
            fn $mutant() {
                let rules = Rules { $($field: $value,)? ..Rules::broken(rules::$only, mutants::$rule) };
                found_out(rules, Promise::$promise, Under::$under);
            }
        )*
    };
}

for_each_mutant!(tests);
