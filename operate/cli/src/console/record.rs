//! The page of one record, the forms to settle it, and the question before that is done.

use idem_core::RecordKey;
use idem_core::listing::Listed;
use idem_core::protocol::{Record, Resolution, Seen, State, StoredResult, Timestamp, Verdict};
use maud::{Markup, html};
use serde::Deserialize;

use super::app::App;
use super::page::Signed;
use crate::end::{Answer, End, Trouble};
use crate::evidence::Form;
use crate::show;
use crate::word::{json_result, response};

/// The fields of a form about a record.
#[derive(Deserialize)]
pub(super) struct Deed {
    pub(super) form: String,
    pub(super) scope: String,
    pub(super) digest: String,
    #[serde(default)]
    pub(super) action: String,
    #[serde(default)]
    pub(super) value: String,
    #[serde(default)]
    pub(super) status: String,
    #[serde(default)]
    pub(super) headers: String,
    #[serde(default)]
    pub(super) reason: String,
    /// Whether the box about encryption is ticked, which is shown where no result of the operation shows it.
    #[serde(default)]
    pub(super) is_said: bool,
    #[serde(default)]
    state: String,
    #[serde(default)]
    fence: u64,
    #[serde(default)]
    attempt: u32,
}

impl Deed {
    pub(super) fn resolution(&self, seen: Seen) -> Answer<Resolution> {
        match self.action.as_str() {
            "forget" => Ok(Resolution::ForgetSeen(seen)),
            "release" => Ok(Resolution::Release),
            "failed" => json_result(Verdict::Failed, &self.value),
            "completed" if self.status.is_empty() => json_result(Verdict::Completed, &self.value),
            "completed" => {
                let wrong = || Trouble::new(End::Usage, "expected an HTTP status");
                let status = self.status.trim().parse().map_err(|_| wrong())?;
                let headers = self.headers.lines().map(str::trim).filter(|line| !line.is_empty());
                response(status, headers, self.value.clone().into_bytes())
            }
            _ => Err(Trouble::new(End::Usage, "choose what happened")),
        }
    }

    /// Whether the record is still as it was shown when the form was made.
    pub(super) fn is_of(&self, seen: Seen) -> bool {
        self.state == seen.state.as_str() && self.fence == seen.fence.get() && self.attempt == seen.attempt
    }
}

/// The effect of a form, in words.
fn means(deed: &Deed) -> &'static str {
    match deed.action.as_str() {
        "forget" => {
            "The record is deleted. The next call with this key runs the body, and its effect may happen again."
        }
        "release" => "The effect did not happen: the next call runs the body.",
        "failed" => "Every later call with this key gets this error.",
        _ if deed.status.is_empty() => "Every later call with this key gets this value.",
        _ => "Every later request with this key gets this response.",
    }
}

/// The hidden fields with the record's name and the state that is shown.
fn of_record(app: &App, signed: &Signed, key: &RecordKey, seen: Seen) -> Markup {
    html! {
        input type="hidden" name="form" value=(app.sessions.form(&signed.id));
        input type="hidden" name="scope" value=(key.scope().as_str());
        input type="hidden" name="digest" value=(key.digest());
        input type="hidden" name="state" value=(seen.state.as_str());
        input type="hidden" name="fence" value=(seen.fence);
        input type="hidden" name="attempt" value=(seen.attempt);
    }
}

pub(super) struct Seeing<'s> {
    pub(super) key: &'s RecordKey,
    pub(super) record: Record,
    pub(super) now: Timestamp,
    pub(super) form: Form,
    /// Whether key and result are shown.
    pub(super) is_open: bool,
}

pub(super) fn record(app: &App, signed: Option<&Signed>, seeing: Seeing<'_>) -> Markup {
    let Seeing { key, record, now, form, is_open } = seeing;
    let seen = Seen::of(&record);
    let (result, steps) = (record.result.clone(), record.steps.clone());
    let lines = show::lines(&Listed::new(key.clone(), record), now, is_open);
    html! {
        dl { @for (name, text) in lines { dt { (name) } dd { bdi { (text) } } } }
        @if !steps.is_empty() {
            h2 { "Steps" }
            ol.steps { @for step in &steps { li { bdi { (crate::output::safe(&step.name)) } } } }
        }
        h2 { "Key and result" }
        @if is_open {
            @match &result {
                Some(StoredResult::Value(bytes)) => pre tabindex="0" { (show::value_text(bytes)) },
                _ => p { "There is no result." },
            }
        } @else if let Some(signed) = signed {
            form action="/reveal" method="post" {
                (of_record(app, signed, key, seen))
                button { "Show key and result" }
            }
        } @else { p { "Hidden. " a href="/login" { "Sign in" } " to see them." } }
        @match signed {
            _ if app.read_only => {},
            None => p { a href="/login" { "Sign in" } " to settle this record." },
            Some(signed) => (settling(app, signed, key, seen, form)),
        }
    }
}

fn settling(app: &App, signed: &Signed, key: &RecordKey, seen: Seen, form: Form) -> Markup {
    let reason = |id: &str| {
        html! {
            label for=(id) { "Reason, for the audit trail" }
            input id=(id) name="reason" maxlength="1000" autocomplete="off";
        }
    };
    html! {
        @if seen.state == State::InDoubt {
            h2 { "Resolve" }
            form.deed action="/confirm" method="post" {
                (of_record(app, signed, key, seen))
                fieldset {
                    legend { "What happened?" }
                    label { input type="radio" name="action" value="completed" required; " The effect happened, and this is its result" }
                    @if form != Form::Response {
                        label { input type="radio" name="action" value="failed"; " It failed for good, and this is its error" }
                    }
                    label { input type="radio" name="action" value="release"; " The effect did not happen" }
                }
                @if form == Form::Response {
                    label for="status" { "Status of the response" }
                    input #status name="status" inputmode="numeric" value="200" maxlength="3";
                    label for="headers" { "Headers, one per line, as name: value" }
                    textarea #headers name="headers" rows="3" spellcheck="false" {}
                    label for="value" { "Body" }
                } @else {
                    label for="value" { "JSON of the value or the error" }
                }
                textarea #value name="value" rows="4" spellcheck="false" {}
                @if form == Form::Unknown {
                    label { input type="checkbox" name="is_said" value="true";
                        @if app.access.has_ring() { " The service encrypts its results with this key ring" }
                        @else { " The service does not encrypt its results" }
                    }
                }
                (reason("why"))
                button { "Continue: see what this does" }
            }
        }
        h2 { "Forget" }
        form.deed action="/confirm" method="post" {
            (of_record(app, signed, key, seen))
            input type="hidden" name="action" value="forget";
            (reason("why-forget"))
            button { "Continue: see what forgetting does" }
        }
    }
}

/// The second step: what will happen, and the form that does it.
pub(super) fn question(app: &App, signed: &Signed, key: &RecordKey, seen: Seen, deed: &Deed) -> Markup {
    html! {
        p.question { strong { (means(deed)) } }
        dl {
            dt { "Record" } dd { (key.digest()) " of " bdi { (crate::output::safe(key.scope().as_str())) } }
            dt { "Now" } dd { (seen.state.as_str()) ", attempt " (seen.attempt) ", fence " (seen.fence) }
            dt { "By" } dd { bdi { (signed.name) } }
            @if !deed.reason.is_empty() { dt { "Reason" } dd { bdi { (crate::output::safe(&deed.reason)) } } }
            @if !deed.status.is_empty() && deed.action == "completed" {
                dt { "Status" } dd { (deed.status) }
                dt { "Headers" } dd { pre { (deed.headers) } }
            }
        }
        @if matches!(deed.action.as_str(), "completed" | "failed") { pre tabindex="0" { (deed.value) } }
        @if seen.state == State::InFlight {
            p.warn { "Its worker may be running: it will lose its claim and its result." }
        }
        p { "The change is made only if the record is still as it is shown here." }
        form.deed action="/settle" method="post" {
            (of_record(app, signed, key, seen))
            @for (name, value) in [("action", &deed.action), ("value", &deed.value), ("status", &deed.status), ("headers", &deed.headers), ("reason", &deed.reason)] {
                input type="hidden" name=(name) value=(value);
            }
            input type="hidden" name="is_said" value=(deed.is_said);
            button.danger { "Do it" }
            " "
            a href=(super::overview::address(key.scope().as_str(), &key.digest().to_string())) { "Cancel" }
        }
    }
}
