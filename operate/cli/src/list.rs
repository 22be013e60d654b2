//! `idem list`: records as rows, or whole.

use std::collections::HashSet;
use std::io::{self, Write as _};

use clap::Args;
use idem_core::listing::Listed;
use idem_core::protocol::{Record, Timestamp};
use idem_core::{RecordKey, StoreErrorKind};
use idem_operate_kit::text::{is_over, name_json, record_head, record_json, record_row, safe, shown};
use idem_operate_kit::{Access, evidence, find, show};
use serde_json::json;

use super::end::{Answer, End};
use super::filter::Filter;
use super::output::Output;

/// How many rows are printed as one table: column widths may differ between tables.
const ROWS: usize = 200;

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Also expired records that were not deleted yet
    #[arg(long)]
    expired: bool,
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// How many records to list at most; 0 for all. 100 unless given, and all with `--full`
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print whole records with their steps, one JSON object per line
    #[arg(long)]
    full: bool,
    /// With `--full`: with results, which may be private
    #[arg(long, requires = "full")]
    results: bool,
    /// Show keys, which are private, instead of their digests
    #[arg(long)]
    keys: bool,
}

impl List {
    fn takes(&self, record: &Record, now: Timestamp) -> bool {
        let states = self.filter.states();
        (self.filter.state.is_empty() || states.contains(&record.state))
            && (self.expired || !is_over(record, now))
            && self.filter.fits(record, now)
    }
}

/// Prints records as they arrive, in tables of `ROWS` rows.
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

    fn unreadable(&mut self, key: &RecordKey, as_json: bool) -> io::Result<()> {
        if as_json || self.output.is_json() {
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

/// The whole record as JSON. `None` if it was deleted meanwhile.
async fn whole(
    list: &List,
    store: &impl idem_core::Store,
    key: &RecordKey,
    now: Timestamp,
) -> Answer<Option<String>> {
    match store.get(key).await {
        Ok(record) => Ok(record.map(|record| show::json(key, record, now, list.keys, list.results))),
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => {
            let mut line = name_json(key, list.keys);
            line["state"] = "unreadable".into();
            line["error"] = error.to_string().into();
            Ok(Some(line.to_string()))
        }
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn run(list: &List, access: &Access, output: &mut Output) -> Answer {
    let scope = list.scope.as_deref().map(find::scope).transpose()?;
    let most = match list.limit {
        Some(0) => usize::MAX,
        None if list.full => usize::MAX,
        limit => limit.unwrap_or(100),
    };
    let store = evidence::readable(&access.store);
    let mut printer = Printer { output, with_keys: list.keys, rows: Vec::new(), listed: 0 };
    let (mut seen, mut more) = (HashSet::new(), false);
    let with_unreadable = list.filter.state.is_empty() || list.filter.names_unreadable();
    // A store may leave out what it cannot read where it looks for states.
    let states = if with_unreadable { Vec::new() } else { list.filter.states() };
    let mut walk = list.filter.walk(access, states, scope).await?;
    'pages: while let Some(page) = walk.page().await? {
        let unreadable = page.unreadable.iter().filter(|_| with_unreadable).map(|key| (key, None));
        let matching = page.records.iter().filter(|listed| list.takes(&listed.record, page.now));
        for (key, listed) in unreadable.chain(matching.map(|listed| (&listed.key, Some(listed)))) {
            // A walk may return a record twice.
            if (list.full || most < usize::MAX) && !seen.insert(key.clone()) {
                continue;
            }
            if printer.listed >= most {
                more = true;
                break 'pages;
            }
            match listed {
                None => printer.unreadable(key, list.full)?,
                Some(listed) if !list.full => printer.record(listed, page.now)?,
                Some(_) => {
                    if let Some(line) = whole(list, &store, key, page.now).await? {
                        printer.listed += 1;
                        printer.output.line(line)?;
                    }
                }
            }
        }
    }
    printer.rows()?;
    if more {
        // To standard error, because a program reads each line of the output as a record.
        let _ = writeln!(io::stderr(), "idem: there are more than {most}: give a higher `--limit`");
    }
    Ok(if printer.listed == 0 { End::Nothing } else { End::Done })
}
