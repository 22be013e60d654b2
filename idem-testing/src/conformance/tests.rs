use std::collections::BTreeSet;

use tokio::time::Duration;

use super::*;
use crate::{Fault, FaultStore, OperationKind};
use idem_core::{Key, RecordKey, Scope};
use idem_runtime::MemoryStore;

async fn memory() -> Subject {
    Subject::new(MemoryStore::new(), Profile::tokio_clock())
}

/// A store that refuses every claim.
async fn refusing() -> Subject {
    let store = FaultStore::new(MemoryStore::new());
    store.always(OperationKind::Claim, Fault::FailBefore);
    Subject::new(store, Profile::tokio_clock())
}

fn check(name: &str) -> &'static Check {
    all().iter().find(|check| check.name == name).unwrap()
}

#[test]
fn there_are_many_checks_each_with_a_name_and_a_rule() {
    let names: BTreeSet<_> = all().iter().map(Check::name).collect();
    assert_eq!(names.len(), all().len());
    assert!(names.len() > 50, "{}", names.len());
    assert!(all().iter().all(|check| !check.rule().is_empty()));
    let themes: BTreeSet<_> = all().iter().map(Check::theme).collect();
    assert_eq!(themes.len(), 12, "each theme has a test in `conformance_suite!`");
}

#[test]
fn a_violation_shows_the_rule_and_what_was_asked_and_answered() {
    let violation = check("a_lease_ends_at_its_last_microsecond_and_not_before").run(refusing).unwrap_err();
    assert_eq!(violation.check(), "a_lease_ends_at_its_last_microsecond_and_not_before");
    let text = violation.to_string();
    for part in
        ["a lease runs from its claim or renewal", violation.check(), "owner 1: claim for 2s", "Unavailable"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(format!("{violation:?}"), text);
}

#[test]
#[should_panic(expected = "no store today")]
fn a_factory_that_panics_fails_the_test() {
    let _ = check("a_lease_ends_at_its_last_microsecond_and_not_before")
        .run(|| async { panic!("no store today") });
}

/// The answers to a random history of `MemoryStore`.
fn answers(seed: u64, operations: usize) -> differential::Answers {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trial = Trial::new(&memory().await, &Arc::default()).unwrap();
        differential::history(&trial, seed, operations).await.unwrap()
    })
}

#[test]
fn a_random_history_meets_every_kind_of_answer() {
    let mut met = BTreeSet::new();
    for seed in 0..6 {
        met.extend(answers(seed, 8_000).into_keys());
    }
    met.retain(|answer| *answer != "purge: some");
    assert_eq!(met.len(), 29, "{met:?}");
}

#[test]
fn the_same_seed_has_the_same_history() {
    // The store decides which of the expired records a purge finds first.
    let history = |seed| {
        let mut answers = answers(seed, 500);
        answers.retain(|what, _| !what.starts_with("purge"));
        answers
    };
    assert_eq!(history(7), history(7));
    assert_ne!(history(7), history(8));
}

#[test]
fn a_store_that_cannot_renew_is_found_by_the_shortest_trace() {
    let refusing = || async {
        let store = FaultStore::new(MemoryStore::new());
        store.always(OperationKind::Renew, Fault::FailBefore);
        Subject::new(store, Profile::tokio_clock())
    };
    assert!(check("a_long_random_history").run(refusing).is_err());
    let violation = check("a_renewal_in_any_state").run(refusing).unwrap_err();
    assert!(violation.to_string().contains("1  +"), "{violation}");
}

#[test]
fn the_short_traces_are_thousands_and_meet_every_answer() {
    let key = RecordKey::new(Scope::new("test").unwrap(), Key::new("a").unwrap());
    let (traces, met) = differential::traces::coverage(&key);
    println!("{traces} traces");
    assert!(traces > 5_000, "{traces}");
    assert_eq!(met.len(), 25, "{met:?}");
}

#[test]
fn a_history_keeps_the_end_and_answers_where_they_belong() {
    let history = History::default();
    let first = history.asked(Duration::ZERO, "the first", None, None);
    for number in 0..2_000 {
        let asked = history.asked(Duration::ZERO, &format!("number {number}"), None, None);
        if number != 1_999 {
            history.answered(asked, &number);
        }
    }
    history.answered(first, &"too late to be kept");
    let text = history.render();
    assert!(text.contains("number 1998 -> 1998\n"), "{text}");
    assert!(text.ends_with("number 1999 -> (no answer)\n"), "{text}");
    assert!(text.starts_with("    .. 1941 before these\n"), "{text}");
    assert!(!text.contains("too late"), "{text}");
}

#[test]
fn a_history_that_is_closed_answers_nobody() {
    let history = Arc::new(History::default());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let trial = Trial::new(&memory().await, &history).unwrap();
        let key = trial.key("a").unwrap();
        assert!(trial.get(&key).await.is_ok());
        history.close();
        let asked = tokio::time::timeout(Duration::from_secs(60), trial.get(&key)).await;
        assert!(asked.is_err());
    });
}
