//! A whole record, as text and as JSON.

use idem_core::RecordKey;
use idem_core::listing::{Listed, ListedResult};
use idem_core::protocol::{OnCrash, Record, RecordedStep, State, StoredResult, Timestamp};
use idem_http::StoredResponse;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::text::{self, date, safe, span};

/// The JSON of a record with its steps. It contains the result if `with_value` is true.
#[must_use]
pub fn json(key: &RecordKey, record: Record, now: Timestamp, with_key: bool, with_value: bool) -> String {
    let (result, steps) = (record.result.clone(), record.steps.clone());
    let mut shown = text::record_json(&Listed::new(key.clone(), record), now, with_key);
    shown["steps"] = steps.iter().map(step_json).collect();
    if let Some(format) = result.as_ref().and_then(StoredResult::format) {
        shown["result"]["format"] = format.to_string().into();
    }
    match &result {
        Some(StoredResult::Value(bytes)) if with_value => with_result(shown, bytes),
        _ => shown.to_string(),
    }
}

/// The JSON of a record with its result. A JSON result is inserted as text, because parsing and printing a
/// number might change it.
fn with_result(mut shown: Value, bytes: &[u8]) -> String {
    if let Some(response) = StoredResponse::from_bytes(bytes) {
        let headers: Vec<(&str, _)> = response
            .headers
            .iter()
            .map(|(name, value)| (name.as_str(), String::from_utf8_lossy(value.as_bytes())))
            .collect();
        shown["result"]["http"] = serde_json::json!({
            "status": response.status.as_u16(),
            "headers": headers,
            "body": String::from_utf8_lossy(&response.body),
        });
        return shown.to_string();
    }
    let text =
        std::str::from_utf8(bytes).ok().filter(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
    let Some(text) = text else {
        shown["result"]["not_json"] = String::from_utf8_lossy(bytes).into();
        return shown.to_string();
    };
    let place = Value::from("\u{0}the result\u{0}");
    shown["result"]["value"] = place.clone();
    // A JSON string contains no raw line break, so only white space is replaced.
    shown.to_string().replacen(&place.to_string(), &text.trim().replace(['\n', '\r'], " "), 1)
}

/// A value as readable text. A response is shown as status, headers and body.
#[must_use]
pub fn value_text(bytes: &[u8]) -> String {
    let Some(response) = StoredResponse::from_bytes(bytes) else {
        return safe(&String::from_utf8_lossy(bytes));
    };
    let mut text = format!("HTTP {}\n", response.status.as_u16());
    for (name, value) in &response.headers {
        text += &format!("{name}: {}\n", safe(&String::from_utf8_lossy(value.as_bytes())));
    }
    text + "\n" + &safe(&String::from_utf8_lossy(&response.body))
}

/// A step without its result, because the result may be private.
fn step_json(step: &RecordedStep) -> Value {
    let result = text::result_json(Some(ListedResult::of(&step.result)));
    serde_json::json!({ "name": step.name, "result": result })
}

/// The lines about a record, as name and text. The steps are shown without their results, because these may
/// be private.
#[must_use]
pub fn lines(
    key: &RecordKey,
    record: &Record,
    now: Timestamp,
    with_key: bool,
) -> Vec<(&'static str, String)> {
    let listed = Listed::new(key.clone(), record.clone());
    let format = record.result.as_ref().and_then(StoredResult::format);
    let ago = |at: Timestamp| match at > now {
        true => format!("{}  in {}", date(at), span(at.since(now))),
        false => format!("{}  {} ago", date(at), span(now.since(at))),
    };
    let recovered = if record.recovered { ", taken over from a worker that went away" } else { "" };
    let on_crash = match record.on_crash {
        OnCrash::Rerun => "run again",
        _ => "in doubt: ask a person",
    };
    let has_lease = matches!(record.state, State::InFlight | State::InDoubt);
    let until = record.expires_at.map_or_else(|| "until it is resolved, or for ever".to_owned(), ago);
    let lines = [
        ("digest", Some(key.digest().to_string())),
        ("scope", Some(safe(key.scope().as_str()))),
        ("key", with_key.then(|| safe(key.key().as_str()))),
        ("state", Some(record.state.as_str().to_owned())),
        ("attempt", Some(format!("{}{recovered}", record.attempt))),
        ("fence", Some(record.fence.to_string())),
        ("on crash", Some(on_crash.to_owned())),
        ("fingerprint", Some(if record.fingerprint.is_some() { "yes" } else { "no" }.to_owned())),
        ("created", Some(ago(record.created_at))),
        ("lease until", has_lease.then(|| ago(record.lease_until))),
        ("due", (record.state == State::Released).then(|| ago(record.retry_at))),
        (record.state.as_str(), record.completed_at.map(ago)),
        ("kept", Some(span(record.ttl))),
        ("until", Some(until)),
        ("result", listed.result.map(|_| text::remark(&listed, now))),
        ("format", format.map(|format| format.to_string())),
    ];
    let steps = record.steps.iter().zip(1..).map(|(step, number)| {
        let size = text::remark_of(ListedResult::of(&step.result));
        ("step", format!("{number}  {}  {size}", safe(&step.name)).trim_end().to_owned())
    });
    lines.into_iter().filter_map(|(name, text)| Some((name, text?))).chain(steps).collect()
}
