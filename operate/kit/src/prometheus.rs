//! The figures in Prometheus' text exposition format, version 0.0.4.
//!
//! Owns the metric names. `ops/` uses the names. Tests compare this file and `ops/` with the table in
//! `docs/cli.md`.

use std::fmt::Write as _;

use idem_core::protocol::{State, Timestamp};

use crate::figures::{Counted, STATES};

/// The metrics with one value for each operation. Without `idem_store_` and `_records`, a metric's name is
/// the name of the field in the JSON of the figures.
const OF_OPERATIONS: [(&str, &str); 6] = [
    ("idem_store_lapsed_records", "Records in flight whose lease has expired, by operation."),
    ("idem_store_expired_records", "Expired records that are not deleted yet, by operation."),
    ("idem_store_oldest_in_flight_seconds", "Age of the oldest record in flight, by operation."),
    ("idem_store_oldest_in_doubt_seconds", "Age of the oldest key in doubt, by operation."),
    ("idem_store_longest_lapse_seconds", "Time since the first of the expired leases ended, by operation."),
    ("idem_store_result_bytes", "Bytes of recorded results as stored, by operation."),
];

/// The metrics as text.
#[must_use]
pub fn text(counted: &Counted) -> String {
    let mut text = String::new();
    let scopes = counted.scopes.iter().map(|(scope, figures)| (escaped(scope), figures.json()));
    let scopes: Vec<_> = scopes.collect();
    head(&mut text, "idem_store_records", "Live records, by operation and state.");
    for (operation, figures) in &scopes {
        for state in STATES.map(State::as_str) {
            let labels = format!("operation=\"{operation}\",state=\"{state}\"");
            let _ = writeln!(text, "idem_store_records{{{labels}}} {}", figures[state]);
        }
    }
    for (name, help) in OF_OPERATIONS {
        head(&mut text, name, help);
        let field = field(name);
        for (operation, figures) in &scopes {
            // Some stores do not report the size of results.
            if field == "result_bytes" && figures["results_of_unknown_size"] != 0 {
                continue;
            }
            // If no record is in this state, the age is absent, and the metric is 0.
            let value = figures[field].as_f64().unwrap_or_default();
            let _ = writeln!(text, "{name}{{operation=\"{operation}\"}} {value}");
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

/// The field of the figures that has the values of this metric.
fn field(name: &str) -> &str {
    name.trim_start_matches("idem_store_").trim_end_matches("_records")
}

fn head(text: &mut String, name: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
}

/// The text escaped for the value of a label, which is in quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Figures;

    #[test]
    fn each_metric_has_its_field() {
        let figures = Figures::default().json();
        assert!(OF_OPERATIONS.iter().all(|(name, _)| figures.get(field(name)).is_some()), "{figures}");
    }

    #[test]
    fn a_label_cannot_end_before_its_end() {
        assert_eq!(escaped("a\"} 1\n\\b"), "a\\\"} 1\\n\\\\b");
    }
}
