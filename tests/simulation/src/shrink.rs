//! Makes a finding short: leaves out of its plan whatever it does not need.

use crate::history::run;
use crate::plan::{Act, End, Plan};

/// The plan without all that can be left out while the same sentence stays broken.
#[must_use]
pub fn shrink(plan: &Plan, sentence: &'static str) -> Plan {
    let breaks =
        |plan: &Plan| run(plan.clone(), false).violations.iter().any(|found| found.sentence == sentence);
    let mut best = plan.clone();
    // The weather written out as the faults that it came to, each of which can be left out.
    let faults = run(plan.clone(), false).faults;
    let written = Plan { weather: Vec::new(), faults, ..plan.clone() };
    if breaks(&written) {
        best = written;
    }
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

/// Leaves out parts of a list: first halves, at last single ones.
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

/// Tries simpler values for what is left.
fn simpler(best: &mut Plan, breaks: &impl Fn(&Plan) -> bool) {
    let mut attempt = |change: &dyn Fn(&mut Plan)| {
        let mut simpler = best.clone();
        change(&mut simpler);
        if breaks(&simpler) {
            *best = simpler;
        }
    };
    for number in 0..8 {
        let at = move |plan: &mut Plan, change: &dyn Fn(&mut crate::plan::OperationPlan)| {
            if let Some(operation) = plan.operations.get_mut(number) {
                change(operation);
            }
        };
        attempt(&|plan| at(plan, &|operation| operation.wait = 0));
        attempt(&|plan| at(plan, &|operation| operation.timeout = None));
        attempt(&|plan| at(plan, &|operation| operation.retry_after = None));
        attempt(&|plan| at(plan, &|operation| operation.retry_after_error = false));
        attempt(&|plan| at(plan, &|operation| operation.max_attempts = None));
        attempt(&|plan| at(plan, &|operation| operation.terminal = false));
        attempt(&|plan| at(plan, &|operation| operation.record_if = false));
        attempt(&|plan| at(plan, &|operation| operation.fail_open = false));
        attempt(&|plan| at(plan, &|operation| operation.fingerprint = false));
        attempt(&|plan| at(plan, &|operation| operation.recover = None));
        attempt(&|plan| at(plan, &|operation| operation.ttl = 86_400_000));
    }
    for number in 0..64 {
        let at = move |plan: &mut Plan, change: &dyn Fn(&mut crate::plan::CallPlan)| {
            if let Some(call) = plan.calls.get_mut(number) {
                change(call);
            }
        };
        attempt(&|plan| at(plan, &|call| call.tries = 1));
        attempt(&|plan| at(plan, &|call| call.dropped_after = None));
        attempt(&|plan| at(plan, &|call| call.deadline = None));
        attempt(&|plan| at(plan, &|call| call.way = crate::plan::Way::Run));
        attempt(&|plan| at(plan, &|call| call.argument = 0));
        attempt(&|plan| at(plan, &|call| call.body.end = End::Value));
        attempt(&|plan| at(plan, &|call| call.body.acts.retain(|act| !matches!(act, Act::Sleep(_)))));
    }
}
