//! The first page: the figures of each operation, and the records that may need a person.

use std::time::Duration;

use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use idem_operate_kit::audit::Entry;
use idem_operate_kit::figures::{Counted, Figures};
use idem_operate_kit::text::{date, record_row, safe, span};
use idem_operate_kit::walk::Prefix;
use idem_operate_kit::{Access, Result, find};
use maud::{Markup, html};
use serde::Deserialize;

use crate::look::{Query, ROWS};
use crate::walks::Aged;

/// From this age on, a page says how old its figures are.
const OLD: Duration = Duration::from_secs(5);

/// The filter of the records that are shown.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Filter {
    scope: String,
    state: String,
    prefix: String,
}

impl Filter {
    fn is_empty(&self) -> bool {
        self.scope.is_empty() && self.state.is_empty() && self.prefix.is_empty()
    }

    /// The walk that finds the records. `None` without a filter, because then the first page's own walk finds
    /// the records.
    pub(crate) async fn query(&self, access: &Access) -> Result<Option<Query>> {
        if self.is_empty() {
            return Ok(None);
        }
        let scope = (!self.scope.is_empty()).then(|| find::scope(&self.scope)).transpose()?;
        let prefix = Prefix::new(access, &self.prefix).await?;
        Ok(Some(Query::Some(scope, State::from_word(&self.state), prefix)))
    }
}

/// The address of a record. It has the operation and the digest instead of the key, because the key is
/// private.
pub(crate) fn address(scope: &str, digest: &str) -> String {
    format!("record?{}", query(&[("scope", scope), ("digest", digest)]))
}

fn query(pairs: &[(&str, &str)]) -> String {
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}

/// The text of the first page while the first walk runs.
pub(crate) fn first() -> Markup {
    html! { p role="status" { "The console reads the store for the first time. Load the page again in a moment." } }
}

pub(crate) fn overview((walk, age): &Aged, listed: &[(Listed, Timestamp)], filter: &Filter) -> Markup {
    let counted = &walk.look.counted;
    html! {
        p { "As of " time { (date(counted.now)) } ", by the store's clock"
            @if *age > OLD { ", " (span(*age)) " ago: a new walk through the store takes its time" } "." }
        (figures(counted))
        (records(listed, filter))
    }
}

fn figures(counted: &Counted) -> Markup {
    html! {
        section aria-labelledby="operations" {
            h2 #operations { "Operations" }
            @if counted.scopes.is_empty() { p { "The store has no records." } } @else {
                div.wide tabindex="0" role="region" aria-label="Table of operations" {
                    table {
                        thead { tr {
                            th scope="col" { "Operation" }
                            @for name in ["In doubt", "Lapsed", "In flight", "Oldest in flight", "Released", "Failed", "Completed"] {
                                th.number scope="col" { (name) }
                            }
                        } }
                        tbody { @for (scope, figures) in &counted.scopes { (row(scope, figures)) } }
                    }
                }
            }
            @if counted.unreadable > 0 {
                p.warn { "This version cannot read " (counted.unreadable) " records." }
            }
        }
    }
}

fn row(scope: &str, figures: &Figures) -> Markup {
    let [in_flight, in_doubt, released, completed, failed] = figures.states;
    let by = |state: &str| format!("./?{}#records", query(&[("scope", scope), ("state", state)]));
    let linked = |count: u64, state: &str, class: &str| {
        html! { td.number { @if count == 0 { "0" } @else { a class=(class) href=(by(state)) { (count) } } } }
    };
    html! { tr {
        th scope="row" { a href=(by("")) { bdi { (safe(scope)) } } }
        (linked(in_doubt, "in_doubt", "bad"))
        (linked(figures.lapsed, "in_flight", "warn"))
        (linked(in_flight, "in_flight", ""))
        td.number { (figures.oldest_in_flight.map_or("-".to_owned(), span)) }
        (linked(released, "released", ""))
        (linked(failed, "failed", "warn"))
        td.number { (completed) }
    } }
}

fn records(records: &[(Listed, Timestamp)], filter: &Filter) -> Markup {
    html! {
        section aria-labelledby="records" {
            h2 #records { @if filter.is_empty() { "Records that are not completed" } @else { "Records" } }
            form.filter action="list" method="post" {
                label for="scope" { "Operation" }
                input #scope name="scope" value=(filter.scope) maxlength="512";
                label for="state" { "State" }
                select #state name="state" {
                    option value="" { "any" }
                    @for state in ["in_doubt", "in_flight", "released", "failed", "completed"] {
                        option value=(state) selected[filter.state == state] { (state) }
                    }
                }
                label for="prefix" { "Key begins with" }
                input #prefix name="prefix" value=(filter.prefix) maxlength="1024" autocomplete="off" spellcheck="false";
                button { "Show" }
            }
            @if records.is_empty() { p { "None." } } @else {
                div.wide tabindex="0" role="region" aria-label="Table of records" {
                    table {
                        thead { tr {
                            @for name in ["Digest", "Operation", "State"] { th scope="col" { (name) } }
                            th.number scope="col" { "Attempt" }
                            @for name in ["Age", "Remark"] { th scope="col" { (name) } }
                        } }
                        tbody { @for (listed, now) in records {
                            @let [digest, scope, state, attempt, age, remark] = record_row(listed, *now, false);
                            tr {
                                td { a.digest href=(address(listed.key.scope().as_str(), &digest)) { (digest) } }
                                td.name { bdi { (scope) } }
                                td { span class={ "tag " (state) } { (state) } }
                                td.number { (attempt) }
                                td.short { (age) }
                                td { (remark) }
                            }
                        } }
                    }
                }
            }
            @if records.len() == ROWS { p { "These are the first " (ROWS) "; " code { "idem list" } " shows all." } }
        }
    }
}

pub(crate) fn trail(entries: &[Entry]) -> Markup {
    html! {
        @if entries.is_empty() { p { "Nobody has settled anything." } } @else {
            div.wide tabindex="0" role="region" aria-label="Audit trail" {
                table {
                    thead { tr { @for name in ["At", "Who", "What", "Operation", "Digest", "Was", "Outcome", "Reason"] { th scope="col" { (name) } } } }
                    tbody { @for entry in entries { tr {
                        @for (field, class) in [("at", "short"), ("by", "name"), ("action", "short"), ("scope", "name"), ("digest", "digest"), ("was", "short"), ("outcome", "short"), ("reason", "reason")] {
                            td class=(class) { bdi { (entry.text(field)) } }
                        }
                    } } }
                }
            }
        }
    }
}
