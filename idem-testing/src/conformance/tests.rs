use std::collections::BTreeSet;

use tokio::time::Duration;

use super::*;
use crate::{Fault, FaultStore, OperationKind};
use idem_runtime::MemoryStore;

/// A store that refuses every request of this kind.
async fn refusing(kind: OperationKind) -> Subject {
    let store = FaultStore::new(MemoryStore::new());
    store.always(kind, Fault::FailBefore);
    Subject::new(store, Profile::tokio_clock())
}

fn check(name: &str) -> &'static Check {
    all().iter().find(|check| check.name == name).unwrap()
}

#[test]
fn each_check_has_a_name_of_its_own_and_each_theme_a_test() {
    let names: BTreeSet<_> = all().iter().map(Check::name).collect();
    assert_eq!(names.len(), all().len());
    let themes: BTreeSet<_> = all().iter().map(Check::theme).collect();
    assert_eq!(themes.len(), 12, "each theme has a test in `conformance_suite!`");
}

#[test]
fn a_violation_shows_the_rule_and_what_was_asked_and_answered() {
    let violation = check("a_lease_ends").run(|| refusing(OperationKind::Claim)).unwrap_err();
    assert_eq!(violation.check(), "a_lease_ends");
    let text = violation.to_string();
    for part in ["a lease runs from its claim or renewal", violation.check(), "lease: 2s", "Unavailable"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(format!("{violation:?}"), text);
}

#[test]
#[should_panic(expected = "no store today")]
fn a_factory_that_panics_fails_the_test() {
    let _ = check("a_lease_ends").run(|| async { panic!("no store today") });
}

#[test]
fn a_store_that_cannot_renew_is_found_by_the_shortest_trace() {
    assert!(check("a_long_random_history").run(|| refusing(OperationKind::Renew)).is_err());
    let violation = check("a_renewal_in_any_state").run(|| refusing(OperationKind::Renew)).unwrap_err();
    assert!(violation.to_string().contains("1  +"), "{violation}");
}

#[test]
fn the_environment_takes_a_sample_for_stores_with_their_own_clock() {
    let one_in = |profile: Profile, sample| profile.sample(2).one_in_with(sample);
    assert_eq!(one_in(Profile::real_clock(), Some("4")), 8);
    for sample in [None, Some("0"), Some("four")] {
        assert_eq!(one_in(Profile::real_clock(), sample), 2);
    }
    assert_eq!(one_in(Profile::tokio_clock(), Some("4")), 2);
}

#[test]
fn a_history_shows_its_end() {
    let history = History::default();
    for number in 0..100 {
        let line = history.note(Duration::ZERO, &format!("number {number}"));
        if number != 99 {
            history.answered(line, &number);
        }
    }
    let text = history.render();
    assert!(text.starts_with("      41  +0.000000s  number 40 -> 40\n"), "{text}");
    assert!(text.ends_with("     100  +0.000000s  number 99\n"), "{text}");
}
