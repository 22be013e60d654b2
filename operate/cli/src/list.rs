//! `idem list`: prints records as rows or as JSON, and with `--full` whole records as JSON.

use std::collections::HashSet;
use std::io::{self, Write as _};

use clap::Args;
use idem_core::protocol::Timestamp;
use idem_core::{RecordKey, StoreErrorKind};
use idem_operate_kit::text::{name_json, record_head, record_json, record_row, safe, shown};
use idem_operate_kit::{Access, evidence, find, show};
use serde_json::Value;

use super::end::{Answer, End};
use super::filter::Filter;
use super::output::Output;

/// How many rows are printed as one table. Column widths may differ between tables.
const ROWS: usize = 200;

#[derive(Args)]
pub(crate) struct List {
    #[command(flatten)]
    filter: Filter,
    /// Also list expired records that are not deleted yet
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
    /// With `--full`, also print results, which may be private
    #[arg(long, requires = "full")]
    results: bool,
    /// Show keys, which are private, instead of their digests
    #[arg(long)]
    keys: bool,
}

/// A record that cannot be read, as JSON.
fn unreadable(key: &RecordKey, with_key: bool) -> Value {
    let mut line = name_json(key, with_key);
    line["state"] = "unreadable".into();
    line
}

/// The whole record as JSON; `None` if it was deleted in the meantime.
async fn whole(
    list: &List,
    store: &impl idem_core::Store,
    key: &RecordKey,
    now: Timestamp,
) -> Answer<Option<String>> {
    match store.get(key).await {
        Ok(record) => Ok(record.map(|record| show::json(key, record, now, list.keys, list.results))),
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => {
            let mut line = unreadable(key, list.keys);
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
    let head = record_head(list.keys);
    let (mut rows, mut listed, mut seen, mut more) = (Vec::new(), 0, HashSet::new(), false);
    let with_unreadable = list.filter.is_of_any_state() || list.filter.names_unreadable();
    // If a store selects by state, it may leave out records that it cannot read. So the walk selects no
    // states if such records are wanted.
    let states = if with_unreadable { Vec::new() } else { list.filter.states() };
    let mut walk = list.filter.walk(access, states, scope).await?;
    'pages: while let Some(page) = walk.page().await? {
        let now = page.now;
        let unread = page.unreadable.iter().filter(|_| with_unreadable).map(|key| (key, None));
        let matching = page.records.iter().filter(|read| list.filter.takes(&read.record, now, list.expired));
        for (key, read) in unread.chain(matching.map(|read| (&read.key, Some(read)))) {
            // A walk may return a record twice.
            if (list.full || most < usize::MAX) && !seen.insert(key.clone()) {
                continue;
            }
            if listed == most {
                more = true;
                break 'pages;
            }
            match read {
                Some(_) if list.full => match whole(list, &store, key, now).await? {
                    Some(line) => output.line(line)?,
                    None => continue,
                },
                Some(read) if output.is_json() => {
                    output.line(record_json(read, now, list.keys).to_string())?;
                }
                Some(read) => rows.push(record_row(read, now, list.keys)),
                None if list.full || output.is_json() => {
                    output.line(unreadable(key, list.keys).to_string())?;
                }
                None => {
                    let [state, nothing] = ["unreadable", ""].map(str::to_owned);
                    let (name, scope) = (shown(key, list.keys), safe(key.scope().as_str()));
                    rows.push([name, scope, state, nothing.clone(), nothing.clone(), nothing]);
                }
            }
            listed += 1;
            if rows.len() == ROWS {
                output.table(head, &std::mem::take(&mut rows))?;
            }
        }
    }
    if !rows.is_empty() {
        output.table(head, &rows)?;
    }
    if more {
        // Prints to standard error, because programs read each line of standard output as a record.
        let _ = writeln!(io::stderr(), "idem: there are more than {most}: give a higher `--limit`");
    }
    Ok(if listed == 0 { End::Nothing } else { End::Done })
}
