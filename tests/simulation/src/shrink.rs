//! Shrinks a plan with a violation: leaves out whatever the violation does not need.

use serde_json::json;

use crate::history::run;
use crate::plan::Plan;

/// Leaves out of the plan as much as possible. A run of the result still violates `sentence`.
#[must_use]
pub fn shrink(plan: &Plan, sentence: &'static str) -> Plan {
    let breaks =
        |plan: &Plan| run(plan.clone(), false).violations.iter().any(|found| found.sentence == sentence);
    // Replaces the weather with the faults that it caused. Each fault can be left out on its own.
    let faults = run(plan.clone(), false).faults;
    let written = Plan { weather: Vec::new(), faults, ..plan.clone() };
    let mut best = if breaks(&written) { written } else { plan.clone() };
    loop {
        let before = size(&best);
        without(&mut best, &breaks, |plan| &mut plan.events);
        without(&mut best, &breaks, |plan| &mut plan.calls);
        without(&mut best, &breaks, |plan| &mut plan.weather);
        without(&mut best, &breaks, |plan| &mut plan.faults);
        for call in 0..best.calls.len() {
            without(&mut best, &breaks, |plan| &mut plan.calls[call].body.acts);
        }
        simpler(&mut best, &breaks);
        if size(&best) >= before {
            return best;
        }
    }
}

fn size(plan: &Plan) -> usize {
    let acts: usize = plan.calls.iter().map(|call| call.body.acts.len()).sum();
    let words = serde_json::to_string(plan).map_or(0, |text| text.len());
    (plan.events.len() + plan.calls.len() + plan.weather.len() + plan.faults.len() + acts) * 10_000 + words
}

/// Leaves out parts of a list: halves at first, single elements in the end.
fn without<T: Clone>(
    best: &mut Plan,
    breaks: &impl Fn(&Plan) -> bool,
    list: impl Fn(&mut Plan) -> &mut Vec<T>,
) {
    let mut part = list(best).len().div_ceil(2);
    while part > 0 {
        let mut at = 0;
        while at < list(best).len() {
            let mut smaller = best.clone();
            let end = (at + part).min(list(&mut smaller).len());
            list(&mut smaller).drain(at..end);
            if breaks(&smaller) {
                *best = smaller;
            } else {
                at += part;
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
}

/// Tries simpler values for everything that remains.
fn simpler(best: &mut Plan, breaks: &impl Fn(&Plan) -> bool) {
    let of_operation = json!({
        "/wait": 0, "/timeout": null, "/retry_after": null, "/retry_after_error": false, "/max_attempts": null,
        "/terminal": false, "/record_if": false, "/fail_open": false, "/fingerprint": false, "/recover": null,
        "/ttl": 86_400_000,
    });
    let of_call = json!({
        "/tries": 1, "/dropped_after": null, "/deadline": null, "/way": "Run", "/argument": 0, "/body/end": "Value",
    });
    let operations =
        (0..best.operations.len()).map(|number| (format!("/operations/{number}"), &of_operation));
    let calls = (0..best.calls.len()).map(|number| (format!("/calls/{number}"), &of_call));
    for (entry, values) in operations.chain(calls) {
        for (field, value) in values.as_object().into_iter().flatten() {
            let mut simpler = serde_json::to_value(&*best).expect("a plan serializes");
            *simpler.pointer_mut(&format!("{entry}{field}")).expect("the field is there") = value.clone();
            let simpler = serde_json::from_value(simpler).expect("it is a plan");
            if breaks(&simpler) {
                *best = simpler;
            }
        }
    }
}
