//! The figures in Prometheus' text exposition format, version 0.0.4.
//!
//! Owns the metric names. `ops/` uses them, and a test compares both with the table in `docs/cli.md`.

use std::fmt::Write as _;
use std::time::Duration;

use idem_core::protocol::Timestamp;

use crate::figures::{Counted, Figures, STATES};

/// The metrics with one value for each operation.
const OF_OPERATIONS: [(&str, &str); 6] = [
    ("idem_store_lapsed_records", "Records in flight whose lease has expired, by operation."),
    ("idem_store_expired_records", "Expired records that are not deleted yet, by operation."),
    ("idem_store_oldest_in_flight_seconds", "Age of the oldest record in flight, by operation."),
    ("idem_store_oldest_in_doubt_seconds", "Age of the oldest key in doubt, by operation."),
    ("idem_store_longest_lapse_seconds", "Time since the first of the expired leases ended, by operation."),
    ("idem_store_result_bytes", "Bytes of recorded results as stored, by operation."),
];

/// Their values. A store may not report the size of results.
fn values(figures: &Figures) -> [Option<f64>; OF_OPERATIONS.len()] {
    [
        Some(number(figures.lapsed)),
        Some(number(figures.expired)),
        Some(seconds(figures.oldest_in_flight)),
        Some(seconds(figures.oldest_in_doubt)),
        Some(seconds(figures.longest_lapse)),
        (figures.unsized_values == 0).then(|| number(figures.bytes)),
    ]
}

/// The metrics as text.
#[must_use]
pub fn text(counted: &Counted) -> String {
    let mut text = String::new();
    head(&mut text, "idem_store_records", "Live records, by operation and state.");
    for (scope, figures) in &counted.scopes {
        let operation = escaped(scope);
        for (state, count) in STATES.into_iter().zip(figures.states) {
            let state = state.as_str();
            let labels = format!("operation=\"{operation}\",state=\"{state}\"");
            let _ = writeln!(text, "idem_store_records{{{labels}}} {count}");
        }
    }
    for (at, (name, help)) in OF_OPERATIONS.into_iter().enumerate() {
        head(&mut text, name, help);
        for (scope, figures) in &counted.scopes {
            if let Some(value) = values(figures)[at] {
                let _ = writeln!(text, "{name}{{operation=\"{}\"}} {value}", escaped(scope));
            }
        }
    }
    let looked_at = counted.now.since(Timestamp::default()).as_secs_f64();
    let help = "When the store was looked at for these figures, by its clock, in seconds since 1970.";
    head(&mut text, "idem_store_looked_at_timestamp_seconds", help);
    let _ = writeln!(text, "idem_store_looked_at_timestamp_seconds {looked_at}");
    head(&mut text, "idem_store_unreadable_records", "Records in the store that this version cannot read.");
    let _ = writeln!(text, "idem_store_unreadable_records {}", counted.unreadable);
    text
}

fn head(text: &mut String, name: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

#[allow(clippy::cast_precision_loss, reason = "a count of records or bytes; counts below 2^53 are exact")]
const fn number(count: u64) -> f64 {
    count as f64
}

fn seconds(span: Option<Duration>) -> f64 {
    span.unwrap_or_default().as_secs_f64()
}

/// The text escaped for the value of a label, which is in quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_cannot_end_before_its_end() {
        assert_eq!(escaped("a\"} 1\n\\b"), "a\\\"} 1\\n\\\\b");
    }
}
