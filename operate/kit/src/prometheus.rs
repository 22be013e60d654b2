//! The figures in Prometheus' text exposition format, version 0.0.4.
//!
//! Owns the metric names. `ops/` uses them, and a test compares `ops/` with [`NAMES`].

use std::fmt::Write as _;
use std::time::Duration;

use crate::figures::{Counted, Figures, STATES};

/// The metrics, each with its help.
pub const NAMES: [(&str, &str); 9] = [
    ("idem_store_records", "Live records, by operation and state."),
    ("idem_store_lapsed_records", "Records in flight whose lease has expired, by operation."),
    ("idem_store_expired_records", "Expired records that are not deleted yet, by operation."),
    ("idem_store_oldest_in_flight_seconds", "Age of the oldest record in flight, by operation."),
    ("idem_store_oldest_in_doubt_seconds", "Age of the oldest key in doubt, by operation."),
    ("idem_store_longest_lapse_seconds", "Time since the first of the expired leases ended, by operation."),
    ("idem_store_result_bytes", "Bytes of recorded results as stored, by operation."),
    ("idem_store_looked_at_seconds", "Time since the store was looked at for these figures."),
    ("idem_store_unreadable_records", "Records in the store that this version cannot read."),
];

/// The metrics as text. `age` is the time since the store was looked at.
#[must_use]
pub fn text(counted: &Counted, age: Duration) -> String {
    let mut text = String::new();
    for (name, help) in NAMES {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        if name == "idem_store_unreadable_records" {
            let _ = writeln!(text, "{name} {}", counted.unreadable());
        }
        if name == "idem_store_looked_at_seconds" {
            let _ = writeln!(text, "{name} {}", age.as_secs_f64());
        }
        for (scope, figures) in counted.scopes() {
            let operation = escaped(scope);
            if name == "idem_store_records" {
                for (state, count) in STATES.into_iter().zip(figures.states) {
                    let state = state.as_str();
                    let _ = writeln!(text, "{name}{{operation=\"{operation}\",state=\"{state}\"}} {count}");
                }
            } else if let Some(value) = value(name, figures) {
                let _ = writeln!(text, "{name}{{operation=\"{operation}\"}} {value}");
            }
        }
    }
    text
}

fn value(name: &str, figures: &Figures) -> Option<f64> {
    // Counts below 2^53 are exact.
    #[allow(clippy::cast_precision_loss, reason = "a count of records or bytes")]
    let count = |count: u64| Some(count as f64);
    let seconds = |span: Option<Duration>| Some(span.unwrap_or_default().as_secs_f64());
    match name {
        "idem_store_lapsed_records" => count(figures.lapsed),
        "idem_store_expired_records" => count(figures.expired),
        "idem_store_oldest_in_flight_seconds" => seconds(figures.oldest_in_flight),
        "idem_store_oldest_in_doubt_seconds" => seconds(figures.oldest_in_doubt),
        "idem_store_longest_lapse_seconds" => seconds(figures.longest_lapse),
        "idem_store_result_bytes" if figures.unsized_values == 0 => count(figures.bytes),
        _ => None,
    }
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
