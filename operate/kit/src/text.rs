//! How a record is shown: in words for people, as JSON for programs.
//!
//! Text from a store may contain anything, so terminal control characters are escaped.

use std::time::Duration;

use idem_core::RecordKey;
use idem_core::listing::{Listed, ListedResult};
use idem_core::protocol::{Owner, Record, State, Timestamp, is_live};
use jiff::{RoundMode, SpanRound, Unit};
use serde_json::{Value, json};

/// Escapes control characters, and the characters that change the direction of text.
#[must_use]
pub fn safe(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut safe, c| {
        let steers = c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers {
            safe.extend(c.escape_unicode());
        } else {
            safe.push(c);
        }
        safe
    })
}

/// The time in the form of RFC 3339.
#[must_use]
pub fn date(at: Timestamp) -> String {
    i64::try_from(at.as_micros())
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok())
        .map_or_else(|| "beyond the year 9999".to_owned(), |at| format!("{at:.6}"))
}

/// A duration in its largest units: `3m 12s`.
#[must_use]
pub fn span(span: Duration) -> String {
    let smallest = match span.as_secs() {
        0 => Unit::Millisecond,
        1..3_600 => Unit::Second,
        3_600..86_400 => Unit::Minute,
        86_400..864_000 => Unit::Hour,
        _ => Unit::Day,
    };
    let units = SpanRound::new().largest(Unit::Day).smallest(smallest).mode(RoundMode::Trunc);
    jiff::Span::try_from(span)
        .and_then(|span| span.round(units.days_are_24_hours()))
        .map_or_else(|_| "for ever".to_owned(), |span| format!("{span:#}"))
}

/// A number of bytes in a readable unit.
#[must_use]
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..10_240 => format!("{bytes} B"),
        10_240..10_485_760 => format!("{} KiB", bytes / 1_024),
        _ => format!("{} MiB", bytes / 1_048_576),
    }
}

/// Whether the record is in flight with an expired lease. If so, its worker is gone, or cannot reach the
/// store.
#[must_use]
pub fn is_lapsed(record: &Record, now: Timestamp) -> bool {
    record.state == State::InFlight && record.lease_until <= now
}

/// Whether the record has expired and counts as absent.
#[must_use]
pub fn is_over(record: &Record, now: Timestamp) -> bool {
    !is_live(record, now)
}

/// 128 bits from a cryptographic generator, as hexadecimal digits.
#[must_use]
pub fn random_hex() -> String {
    Owner::random().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The name of a record: its scope and digest, and the key if `with_key`.
#[must_use]
pub fn name_json(key: &RecordKey, with_key: bool) -> Value {
    let mut name = json!({ "scope": key.scope().as_str(), "digest": key.digest().to_string() });
    if with_key {
        name["key"] = key.key().as_str().into();
    }
    name
}

/// A result as JSON, without its value.
#[must_use]
pub(crate) fn result_json(result: Option<ListedResult>) -> Value {
    match result {
        None => Value::Null,
        Some(ListedResult::Value { bytes }) => json!({ "kind": "value", "bytes": bytes }),
        Some(ListedResult::Tombstone(reason)) => json!({ "kind": reason.as_str() }),
        Some(_) => json!({ "kind": "unknown" }),
    }
}

/// A record as JSON.
#[must_use]
pub fn record_json(listed: &Listed, now: Timestamp, with_key: bool) -> Value {
    let Listed { key, record, result, .. } = listed;
    let mut shown = name_json(key, with_key);
    let more = json!({
        "state": State::as_str(record.state),
        "lapsed": is_lapsed(record, now),
        "expired": is_over(record, now),
        "age_seconds": now.since(record.created_at).as_secs_f64(),
        "attempt": record.attempt,
        "fence": record.fence.get(),
        "recovered": record.recovered,
        "on_crash": record.on_crash.as_str(),
        "fingerprint": record.fingerprint.is_some(),
        "created_at": date(record.created_at),
        "lease_until": date(record.lease_until),
        "retry_at": (record.state == State::Released).then(|| date(record.retry_at)),
        "completed_at": record.completed_at.map(date),
        "expires_at": record.expires_at.map(date),
        "ttl_seconds": record.ttl.as_secs_f64(),
        "result": result_json(*result),
    });
    if let (Value::Object(shown), Value::Object(more)) = (&mut shown, more) {
        shown.extend(more);
    }
    shown
}

/// A few words about what a person should know of the record now.
#[must_use]
pub(crate) fn remark(listed: &Listed, now: Timestamp) -> String {
    let Listed { record, result, .. } = listed;
    if is_over(record, now) {
        return "expired".to_owned();
    }
    match record.state {
        State::InFlight if record.lease_until > now => {
            format!("lease {} left", span(record.lease_until.since(now)))
        }
        State::InFlight => format!("lease expired {} ago", span(now.since(record.lease_until))),
        State::Released if record.retry_at > now => format!("due in {}", span(record.retry_at.since(now))),
        State::Released => "due".to_owned(),
        State::InDoubt => "must be resolved by a person".to_owned(),
        _ => result.map(remark_of).unwrap_or_default(),
    }
}

/// A result's size, or why there is none.
#[must_use]
pub(crate) fn remark_of(result: ListedResult) -> String {
    match result {
        ListedResult::Value { bytes: Some(bytes) } => size(bytes),
        ListedResult::Value { bytes: None } => String::new(),
        ListedResult::Tombstone(reason) => format!("no result: {}", reason.as_str()),
        _ => String::new(),
    }
}

/// The key if `with_key`, otherwise the digest.
#[must_use]
pub fn shown(key: &RecordKey, with_key: bool) -> String {
    if with_key { safe(key.key().as_str()) } else { key.digest().to_string() }
}

/// A record as one row of a table.
#[must_use]
pub fn record_row(listed: &Listed, now: Timestamp, with_key: bool) -> [String; 6] {
    let Listed { key, record, .. } = listed;
    [
        shown(key, with_key),
        safe(key.scope().as_str()),
        State::as_str(record.state).to_owned(),
        record.attempt.to_string(),
        span(now.since(record.created_at)),
        remark(listed, now),
    ]
}

/// The head of a table of [`record_row`]s.
#[must_use]
pub const fn record_head(with_key: bool) -> [&'static str; 6] {
    [if with_key { "KEY" } else { "DIGEST" }, "SCOPE", "STATE", "ATTEMPT", "AGE", ""]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_shown_in_their_largest_units() {
        for (micros, said) in [
            (0, "0s"),
            (12_345, "12ms"),
            (12_345_678, "12s"),
            (192_000_000, "3m 12s"),
            (3_725_000_000, "1h 2m"),
            (90_000_000_000, "1d 1h"),
            (864_000_000_000 * 3, "30d"),
        ] {
            assert_eq!(span(Duration::from_micros(micros)), said);
        }
    }

    #[test]
    fn characters_that_control_a_terminal_are_escaped() {
        assert_eq!(safe("a\u{1b}[2Jb\nü"), "a\\u{1b}[2Jb\\u{a}ü");
        assert_eq!(safe("x\u{202e}y\u{61c}"), "x\\u{202e}y\\u{61c}");
    }

    #[test]
    fn a_date_is_rfc_3339() {
        assert_eq!(date(Timestamp::from_micros(1_700_000_000_000_007)), "2023-11-14T22:13:20.000007Z");
        assert_eq!(date(Timestamp::from_micros(u64::MAX)), "beyond the year 9999");
    }
}
