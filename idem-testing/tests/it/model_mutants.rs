//! Tests that the model check detects each mutant of the protocol's rules.

use stateright::{Checker as _, HasDiscoveries};

use crate::support::model::{Bounded, ENOUGH};
use crate::support::mutants;
use crate::support::promise::Promise;
use crate::support::rules::{self, Rules};
use crate::support::setup::{Setup, Under};

fn found_out(rules: Rules, breaks: Promise, under: Under) {
    let (bounded, name) = (Bounded(Setup { rules, ..Setup::wide(under) }), breaks.name());
    let run = bounded.explored(1, HasDiscoveries::AllOf([name].into()), ENOUGH);
    let Some(found) = run.discovery(name) else { panic!("the mutant survives: nothing breaks \"{name}\"") };
    println!("{name} is broken by {:?}", found.into_actions());
}

#[test]
fn the_shipped_rules_survive_where_the_mutants_are_found() {
    for under in Under::ALL {
        let broken = Bounded(Setup::wide(under)).explored(1, HasDiscoveries::All, ENOUGH / 4).discoveries();
        for promise in Promise::ALL {
            assert!(!broken.contains_key(promise.name()), "{under:?} breaks \"{}\"", promise.name());
        }
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
