//! `idem list`.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::time::Duration;

use clap::{Args, ValueEnum};
use idem_core::RecordKey;
use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use idem_runtime::DynStore;
use jiff::SignedDuration;
use serde_json::json;

use super::end::{Answer, End};
use super::output::{
    Output, is_lapsed, is_over, name_json, record_head, record_json, record_row, safe, shown,
};
use super::target;
use super::walk::Walk;

/// How many rows of a table have one width.
const ROWS: usize = 200;

#[derive(Args)]
pub(crate) struct List {
    /// Only records in this state; may be given several times
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<StateName>,
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// Only records first claimed longer ago than this, by the store's clock: 10m, 2h, 1d
    #[arg(long, value_name = "SPAN", value_parser = older)]
    older: Option<Duration>,
    /// Only records in flight whose lease is over: their workers are gone
    #[arg(long)]
    lapsed: bool,
    /// Records past their time, too, where they were not deleted yet
    #[arg(long)]
    expired: bool,
    /// How many to list at the most; 0 for all
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    /// Show keys, which are private, and not their digests alone
    #[arg(long)]
    keys: bool,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum StateName {
    #[value(alias = "in_flight")]
    InFlight,
    Completed,
    Failed,
    Released,
    #[value(alias = "in_doubt")]
    InDoubt,
}

impl From<StateName> for State {
    fn from(name: StateName) -> Self {
        match name {
            StateName::InFlight => Self::InFlight,
            StateName::Completed => Self::Completed,
            StateName::Failed => Self::Failed,
            StateName::Released => Self::Released,
            StateName::InDoubt => Self::InDoubt,
        }
    }
}

fn older(text: &str) -> Result<Duration, String> {
    let wrong = || "write a span of time such as 30s, 10m, 2h or 7d".to_owned();
    // Days and weeks here are of 24 hours, whatever a calendar says.
    let span: jiff::Span = text.parse().map_err(|_| wrong())?;
    let span: SignedDuration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| wrong())?;
    Duration::try_from(span).map_err(|_| wrong())
}

impl List {
    fn fits(&self, listed: &Listed, now: Timestamp) -> bool {
        let Listed { record, .. } = listed;
        (self.expired || !is_over(record, now))
            && (!self.lapsed || is_lapsed(record, now))
            && self.older.is_none_or(|older| now.since(record.created_at) > older)
    }
}

/// Prints records as they come, tables in pieces.
struct Printer<'o> {
    output: &'o mut Output,
    with_keys: bool,
    rows: Vec<[String; 6]>,
    listed: usize,
}

impl Printer<'_> {
    fn record(&mut self, listed: &Listed, now: Timestamp) -> io::Result<()> {
        if self.output.is_json() {
            self.listed += 1;
            return self.output.line(record_json(listed, now, self.with_keys).to_string());
        }
        self.row(record_row(listed, now, self.with_keys))
    }

    fn unreadable(&mut self, key: &RecordKey) -> io::Result<()> {
        if self.output.is_json() {
            self.listed += 1;
            let mut unreadable = name_json(key, self.with_keys);
            unreadable["state"] = json!("unreadable");
            return self.output.line(unreadable.to_string());
        }
        let nothing = String::new;
        self.row([
            shown(key, self.with_keys),
            safe(key.scope().as_str()),
            "unreadable".into(),
            nothing(),
            nothing(),
            nothing(),
        ])
    }

    fn row(&mut self, row: [String; 6]) -> io::Result<()> {
        self.listed += 1;
        self.rows.push(row);
        if self.rows.len() < ROWS { Ok(()) } else { self.rows() }
    }

    fn rows(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.rows) {
            rows if rows.is_empty() => Ok(()),
            rows => self.output.table(record_head(self.with_keys), &rows),
        }
    }
}

pub(crate) async fn run(list: &List, store: &DynStore, output: &mut Output) -> Answer {
    let scope = list.scope.as_deref().map(target::scope).transpose()?;
    let states = list.state.iter().copied().map(State::from).collect();
    let most = if list.limit == 0 { usize::MAX } else { list.limit };
    let mut printer = Printer { output, with_keys: list.keys, rows: Vec::new(), listed: 0 };
    let (mut seen, mut more) = (HashSet::new(), false);
    let mut walk = Walk::new(store, states, scope);
    'pages: while let Some(page) = walk.page().await? {
        // What state it is in cannot be told, so it is in none that was asked for.
        for key in page.unreadable.iter().filter(|_| list.state.is_empty()) {
            printer.unreadable(key)?;
        }
        for record in page.records.iter().filter(|record| list.fits(record, page.now)) {
            // A walk may give a record twice.
            if most < usize::MAX && !seen.insert(record.key.clone()) {
                continue;
            }
            if printer.listed >= most {
                more = true;
                break 'pages;
            }
            printer.record(record, page.now)?;
        }
    }
    printer.rows()?;
    if more {
        // Not among the records, where a program would take it for one.
        let _ = writeln!(io::stderr(), "idem: there are more than {most}: say `--limit`");
    }
    Ok(if printer.listed == 0 { End::Nothing } else { End::Done })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_a_span_of_time() {
        assert_eq!(older("10m"), Ok(Duration::from_secs(600)));
        assert_eq!(older("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(older("7d"), Ok(Duration::from_secs(7 * 86_400)));
        for text in ["", "10", "soon", "-5m", "1mo"] {
            assert!(older(text).is_err(), "{text}");
        }
    }
}
