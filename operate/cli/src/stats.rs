//! `idem stats`: the figures, once or repeatedly.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use idem_core::Scope;
use idem_core::protocol::State;
use idem_operate_kit::figures::{Counted, Look};
use idem_operate_kit::text::{date, record_head, record_json, record_row};
use idem_operate_kit::walk::Walk;
use idem_operate_kit::{Error, Kind, figures, find, prometheus};
use idem_runtime::{Catalogue, DynStore};

use super::end::{Answer, End};
use super::filter::span;
use super::output::Output;
use super::place::text;

/// Moves the cursor to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// The largest number of open records (in flight or in doubt) that `--watch` shows. Records that need a
/// person come first, then the oldest records.
const ROWS: usize = 20;

#[derive(Args)]
pub(crate) struct Stats {
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// Only operations that are not in this catalogue, because they were renamed or removed. The file is one
    /// that `assert_catalogue` checks. Give this option once for each program that uses the store
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scope", "watch"])]
    catalogue: Vec<PathBuf>,
    /// The output format: prometheus is for the textfile collector of Prometheus' node exporter
    #[arg(long, value_enum, default_value_t = Format::Table, conflicts_with = "watch")]
    format: Format,
    /// Print the figures and the open records again and again, until the command is interrupted
    #[arg(long)]
    watch: bool,
    /// The time between two rounds; each round reads the whole store. 2s unless given, and 60s on DynamoDB,
    /// where a round costs the read units of the whole table
    #[arg(long, value_name = "SPAN", value_parser = span, requires = "watch")]
    interval: Option<Duration>,
    /// How many rounds to run
    #[arg(long, value_name = "N", requires = "watch")]
    times: Option<u64>,
    /// Show keys, which are private
    #[arg(long, requires = "watch")]
    keys: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Prometheus,
}

/// The scopes of all catalogues.
fn claimed(files: &[PathBuf]) -> Answer<BTreeSet<String>> {
    let mut claimed = BTreeSet::new();
    for file in files {
        let wrong = |why| Error::usage(format!("cannot read the catalogue {}: {why}", file.display()));
        let catalogue = Catalogue::parse(&text(file)?).map_err(wrong)?;
        claimed.extend(catalogue.operations().iter().filter_map(|operation| operation.scope.clone()));
    }
    Ok(claimed)
}

async fn look(store: &DynStore, scope: Option<Scope>) -> Answer<Look> {
    let is_open = |state| matches!(state, State::InFlight | State::InDoubt);
    figures::look(Walk::new(store, Vec::new(), scope), ROWS, is_open).await
}

fn print(counted: &Counted, rows: &[[String; 10]], output: &mut Output) -> Answer<()> {
    output.table(Counted::head(), rows)?;
    if counted.unreadable > 0 {
        let text =
            format!("{} records cannot be read: see `idem list --state unreadable`", counted.unreadable);
        output.line(text)?;
    }
    Ok(())
}

pub(crate) async fn run(stats: &Stats, store: &DynStore, costly: bool, output: &mut Output) -> Answer {
    let scope = stats.scope.as_deref().map(find::scope).transpose()?;
    if stats.watch {
        return watch(stats, store, scope, costly, output).await;
    }
    let claimed = claimed(&stats.catalogue)?;
    let mut counted = look(store, scope).await?.counted;
    counted.scopes.retain(|scope, _| !claimed.contains(scope));
    let (mut rows, mut json) = (counted.rows(), counted.json());
    let is_part = !stats.catalogue.is_empty();
    if let (true, Some(json)) = (is_part, json.as_object_mut()) {
        // With catalogues, only some operations are shown, so figures of all operations would mislead.
        json.remove("all");
        rows.pop();
    }
    match stats.format {
        Format::Prometheus => {
            output.text(&prometheus::text(&counted))?;
            return Ok(End::Done);
        }
        Format::Table if output.is_json() => output.line(json.to_string())?,
        Format::Table => print(&counted, &rows, output)?,
    }
    let is_empty = if is_part { counted.scopes.is_empty() } else { counted.is_empty() };
    Ok(if is_empty { End::Nothing } else { End::Done })
}

async fn watch(
    stats: &Stats,
    store: &DynStore,
    scope: Option<Scope>,
    costly: bool,
    output: &mut Output,
) -> Answer {
    let interval = stats.interval.unwrap_or(Duration::from_secs(if costly { 60 } else { 2 }));
    let interval = interval.max(Duration::from_millis(100));
    let mut rounds = stats.times;
    loop {
        let seen = look(store, scope.clone()).await;
        rounds = rounds.map(|rounds| rounds.saturating_sub(1));
        if output.is_terminal() && !output.is_json() {
            output.text(CLEAR)?;
        }
        match seen {
            Ok(look) => frame(&look, stats.keys, interval, output)?,
            // The store may be reachable again in the next round.
            Err(error) if rounds != Some(0) && error.kind() == Kind::Unreachable => {
                output.line(error.to_string())?;
            }
            Err(error) => return Err(error),
        }
        output.flush()?;
        if rounds == Some(0) {
            return Ok(End::Done);
        }
        tokio::time::sleep(interval).await;
    }
}

fn frame(look: &Look, keys: bool, interval: Duration, output: &mut Output) -> Answer<()> {
    if output.is_json() {
        let open = look.open.iter().map(|(listed, now)| record_json(listed, *now, keys));
        let mut frame = look.counted.json();
        frame["open"] = open.collect::<Vec<_>>().into();
        return output.line(frame.to_string());
    }
    output.line(format!("{}  every {interval:?}, until Ctrl-C", date(look.counted.now)))?;
    print(&look.counted, &look.counted.rows(), output)?;
    if look.open.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let rows: Vec<_> = look.open.iter().map(|(listed, now)| record_row(listed, *now, keys)).collect();
    output.table(record_head(keys), &rows)
}
