//! Tests of the errors that a user's tests can make.

use std::collections::HashSet;
use std::time::Duration;

use idem_core::{Key, RecordKey, Scope, StoreError};
use idem_runtime::{Error, ErrorKind, Loss};
use idem_testing::errors;

const AFTER: Duration = Duration::from_secs(3);

#[test]
fn there_is_one_error_of_each_kind_and_its_word_is_its_own() {
    let kinds: Vec<_> = errors::all("payments.charge").iter().map(Error::kind).collect();
    assert_eq!(kinds, ErrorKind::ALL);
    let words: HashSet<_> = kinds.iter().map(|kind| kind.as_str()).collect();
    assert_eq!(words.len(), kinds.len());
    assert!(kinds.iter().all(|kind| *kind == kind.as_str() && format!("{kind}") == kind.as_str()));
}

#[test]
fn whether_and_when_a_call_may_be_made_again_is_told_of_each_kind() {
    use ErrorKind as Kind;
    for error in errors::all("payments.charge") {
        let kind = error.kind();
        let again = [
            Kind::InFlight,
            Kind::NotDue,
            Kind::LeaseLost,
            Kind::TimedOut,
            Kind::NoTimeLeft,
            Kind::NotRecorded,
            Kind::Store,
            Kind::StepStore,
        ];
        assert_eq!(error.is_retryable(), again.contains(&kind), "{kind}");
        let after = matches!(kind, Kind::InFlight | Kind::NotDue).then_some(AFTER);
        assert_eq!(error.retry_after(), after, "{kind}");
    }
    // Two errors for which a retry does not help, although their kinds are in the list above.
    let broken = StoreError::configuration("the password is wrong");
    assert!(!errors::store("payments.charge", broken).is_retryable());
    let reentrant = errors::reentrant("payments.charge");
    assert_eq!((reentrant.is_retryable(), reentrant.retry_after()), (false, None));
    assert!(reentrant.to_string().contains("its own body makes this call"), "{reentrant}");
}

#[test]
fn each_text_names_the_operation_and_says_what_to_do_and_shows_no_key() {
    // Phrases that tell a person what to do. Each text has one of them.
    let advice = [
        "call again",
        "try again",
        "use a new key",
        "resolve",
        "forget",
        "look up",
        "return a type",
        "give each call",
        "use an identifier",
        "must be",
        "roll back",
        "give each its own",
        "begin it in",
        "read it as",
        "make the step in",
    ];
    for error in errors::all("payments.charge") {
        let (kind, text) = (error.kind(), error.to_string());
        assert!(text.contains("payments.charge"), "{kind}: {text}");
        assert!(advice.iter().any(|advice| text.contains(advice)), "{kind} says not what to do: {text}");
        assert!(!text.contains("example") && !format!("{error:?}").contains("example"), "{kind}: {text}");
    }
    let key = RecordKey::new(Scope::new("payments.charge").unwrap(), Key::new("example").unwrap());
    let busy = errors::in_flight("payments.charge", AFTER).to_string();
    assert!(busy.contains(&key.digest().to_string()), "{busy}");
    let lost = errors::lease_lost("payments.charge", Loss::Forgotten).to_string();
    assert!(lost.contains("its record was deleted meanwhile; call again to run it"), "{lost}");
}
