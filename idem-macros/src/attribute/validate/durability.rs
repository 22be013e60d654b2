//! Rules about `claim_durability`: its values, and which options contradict claims that are relaxed.

use super::super::parse::{Given, Value};
use super::value;
use crate::diagnostics::Faults;

/// Whether claims are relaxed. `beside` has the other options, with whether they are there.
pub(super) fn check(option: Given<Value>, beside: [(&str, bool); 4], faults: &mut Faults) -> bool {
    let Some(Value(given)) = super::given(option, faults) else { return false };
    match value::claim_durability(&given) {
        Ok((true, _)) => {}
        Ok((false, _)) => return false,
        Err(message) => {
            faults.push_at(&given, message);
            return false;
        }
    }
    for (option, _) in beside.into_iter().filter(|(_, there)| *there) {
        let why = why_not(option);
        faults.push_at(
            &given,
            format!("`claim_durability = \"relaxed\"` contradicts `{option}`: {why}; leave one out"),
        );
    }
    true
}

fn why_not(option: &str) -> &'static str {
    match option {
        "max_attempts" => "a claim that a crash of the store's server loses is an attempt that nobody counts",
        "recover" => "after a crash of the store's server that loses the claim, `recover` is not called",
        "transaction" => "the claim is as durable as the caller's commit makes it",
        _ => "a claim that a crash of the store's server loses lets the body start twice",
    }
}
