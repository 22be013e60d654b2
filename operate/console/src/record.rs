//! The page of one record, the forms to settle the record, and the question before a decision is carried out.

use idem_core::RecordKey;
use idem_core::protocol::{Record, StoredResult, Timestamp, Verdict};
use idem_operate_kit::act::{Decision, Shown};
use idem_operate_kit::evidence::Form;
use idem_operate_kit::result::{json_result, response};
use idem_operate_kit::text::safe;
use idem_operate_kit::{Error, Result, show};
use maud::{Markup, html};
use serde::Deserialize;

use crate::forms::Issued;
use crate::overview::address;
use crate::page::Visit;

/// The fields of a form about a record.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Sent {
    pub(crate) form: String,
    action: String,
    value: String,
    pub(crate) status: String,
    headers: String,
    pub(crate) reason: String,
    /// Whether the box about encryption is ticked. The page has the box if no result of the operation shows
    /// whether the operation's results are encrypted.
    pub(crate) is_said: bool,
}

impl Sent {
    pub(crate) fn decision(&self) -> Result<Decision> {
        match self.action.as_str() {
            "forget" => Ok(Decision::Forget),
            "release" => Ok(Decision::Release),
            "failed" => json_result(Verdict::Failed, &self.value),
            "completed" if self.status.is_empty() => json_result(Verdict::Completed, &self.value),
            "completed" | "responded" => {
                let wrong = || Error::usage("expected an HTTP status");
                let status = self.status.trim().parse().map_err(|_| wrong())?;
                let headers = self.headers.lines().map(str::trim).filter(|line| !line.is_empty());
                response(status, headers, self.value.clone().into_bytes())
            }
            _ => Err(Error::usage("choose what happened")),
        }
    }
}

/// The hidden field with a new form's number.
fn hidden(visit: &Visit, issued: Issued) -> Markup {
    html! { input type="hidden" name="form" value=(visit.app.forms.issue(&visit.operator.name, issued)); }
}

/// A record, and what its page shows about it.
pub(crate) struct Whole<'k> {
    pub(crate) key: &'k RecordKey,
    pub(crate) record: Record,
    pub(crate) now: Timestamp,
    pub(crate) form: Form,
    /// Whether the page shows the key and the result.
    pub(crate) is_open: bool,
}

pub(crate) fn record(visit: &Visit, whole: Whole<'_>) -> Markup {
    let Whole { key, record, now, form, is_open } = whole;
    let shown = Shown::of(&record, now);
    let issued = || Issued { key: key.clone(), shown, decided: None };
    html! {
        dl { @for (name, text) in show::lines(key, &record, now, is_open) { dt { (name) } dd { bdi { (text) } } } }
        h2 { "Key and result" }
        @if is_open {
            @match &record.result {
                Some(StoredResult::Value(bytes)) => pre tabindex="0" { (show::value_text(bytes)) },
                _ => p { "There is no result." },
            }
        } @else {
            form action="reveal" method="post" {
                (hidden(visit, issued()))
                button { "Show key and result" }
            }
            p { "The audit trail notes who saw them." }
        }
        @if !visit.app.read_only { (settling(visit, issued, form)) }
    }
}

fn settling(visit: &Visit, issued: impl Fn() -> Issued, form: Form) -> Markup {
    let reason = |id: &str| {
        html! {
            label for=(id) { "Reason, for the audit trail" }
            input id=(id) name="reason" maxlength="1000" autocomplete="off";
        }
    };
    // If nothing shows whether the operation is a function or a handler of the HTTP layer, the page has the
    // fields for both.
    let may_be_either = matches!(form, Form::Unknown | Form::AsHere);
    html! {
        @if issued().shown.is_resolvable() {
            h2 { "Resolve" }
            form.deed action="confirm" method="post" {
                (hidden(visit, issued()))
                fieldset {
                    legend { "What happened?" }
                    label { input type="radio" name="action" value="completed" required; " The effect happened, and this is its result" }
                    @if may_be_either {
                        label { input type="radio" name="action" value="responded"; " The effect happened, and this is its HTTP response" }
                    }
                    @if form != Form::Response {
                        label { input type="radio" name="action" value="failed"; " It failed for good, and this is its error" }
                    }
                    label { input type="radio" name="action" value="release"; " The effect did not happen" }
                }
                @if form == Form::Response || may_be_either {
                    label for="status" { "Status of the response" }
                    input #status name="status" inputmode="numeric" value=[(!may_be_either).then_some("200")] maxlength="3";
                    label for="headers" { "Headers of the response, one per line, as name: value" }
                    textarea #headers name="headers" rows="3" spellcheck="false" {}
                }
                label for="value" {
                    @if form == Form::Response { "Body" }
                    @else if may_be_either { "JSON of the value or the error, or the body of the response" }
                    @else { "JSON of the value or the error" }
                }
                textarea #value name="value" rows="4" spellcheck="false" {}
                @if form == Form::Unknown {
                    label { input type="checkbox" name="is_said" value="true";
                        @if visit.app.access.has_ring() { " The service encrypts its results with this key ring" }
                        @else { " The service does not encrypt its results" }
                    }
                }
                (reason("why"))
                button { "Continue: see what this does" }
            }
        }
        h2 { "Forget" }
        form.deed action="confirm" method="post" {
            (hidden(visit, issued()))
            input type="hidden" name="action" value="forget";
            (reason("why-forget"))
            button { "Continue: see what forgetting does" }
        }
    }
}

/// The second step: what the decision does to the record, and the form that confirms the decision.
pub(crate) fn question(visit: &Visit, issued: Issued, decision: &Decision, sent: &Sent) -> Markup {
    let (key, shown) = (issued.key.clone(), issued.shown);
    html! {
        p.question { strong { "The record is " (decision.means()) "." } }
        dl {
            dt { "Record" } dd { (key.digest()) " of " bdi { (safe(key.scope().as_str())) } }
            @if let Some(seen) = shown.seen() {
                dt { "Now" } dd { (seen.state.as_str()) ", attempt " (seen.attempt) ", fence " (seen.fence) }
            }
            dt { "By" } dd { bdi { (visit.operator.name) } }
            @if !sent.reason.is_empty() { dt { "Reason" } dd { bdi { (safe(&sent.reason)) } } }
            @if !sent.status.is_empty() && matches!(sent.action.as_str(), "completed" | "responded") {
                dt { "Status" } dd { (sent.status) }
                dt { "Headers" } dd { pre { (sent.headers) } }
            }
        }
        @if matches!(sent.action.as_str(), "completed" | "responded" | "failed") { pre tabindex="0" { (sent.value) } }
        @if let Some(warning) = shown.warning() { p.warn { (warning) } }
        p { "The change is made only if the record is still as it is shown here." }
        form.deed action="settle" method="post" {
            (hidden(visit, issued))
            button.danger { "Do it" }
            " "
            a href=(address(key.scope().as_str(), &key.digest().to_string())) { "Cancel" }
        }
    }
}
