//! `idem stats`: the figures, once or again and again.

use std::time::Duration;

use clap::{Args, ValueEnum};
use idem_core::Scope;
use idem_core::protocol::State;
use idem_operate_kit::figures::{Counted, Look};
use idem_operate_kit::text::{date, record_head, record_json, record_row};
use idem_operate_kit::walk::Walk;
use idem_operate_kit::{Result, figures, find, prometheus};
use idem_runtime::DynStore;

use super::end::{Answer, End, Trouble};
use super::output::Output;

/// Moves the cursor to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args)]
pub(crate) struct Stats {
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// The output format: prometheus is for the textfile collector of Prometheus' node exporter
    #[arg(long, value_enum, default_value_t = Format::Table, conflicts_with = "watch")]
    format: Format,
    /// Print the figures and the open records again and again, until it is interrupted
    #[arg(long)]
    watch: bool,
    /// Seconds between two rounds; each round reads the whole store. 2 unless given, and 60 on DynamoDB, where a round
    /// costs the read units of the whole table
    #[arg(long, value_name = "SECONDS", requires = "watch")]
    interval: Option<f64>,
    /// How many records to show of those in flight and in doubt, the oldest first
    #[arg(long, default_value_t = 20, value_name = "N", requires = "watch")]
    rows: usize,
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

async fn look(store: &DynStore, scope: Option<Scope>, rows: usize) -> Result<Look> {
    let is_open = |state| matches!(state, State::InFlight | State::InDoubt);
    figures::look(Walk::new(store, Vec::new(), scope), rows, is_open).await
}

fn print(counted: &Counted, output: &mut Output) -> std::io::Result<()> {
    let head = [
        "SCOPE",
        "IN_FLIGHT",
        "LAPSED",
        "OLDEST",
        "IN_DOUBT",
        "RELEASED",
        "COMPLETED",
        "FAILED",
        "EXPIRED",
        "RESULTS",
    ];
    output.table(head, &counted.rows())?;
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
    let counted = look(store, scope, 0).await?.counted;
    match stats.format {
        Format::Prometheus => {
            output.text(&prometheus::text(&counted))?;
            return Ok(End::Done);
        }
        Format::Table if output.is_json() => output.line(counted.json().to_string())?,
        Format::Table => print(&counted, output)?,
    }
    Ok(if counted.is_empty() { End::Nothing } else { End::Done })
}

async fn watch(
    stats: &Stats,
    store: &DynStore,
    scope: Option<Scope>,
    costly: bool,
    output: &mut Output,
) -> Answer {
    let seconds = stats.interval.unwrap_or(if costly { 60.0 } else { 2.0 }).max(0.1);
    let interval = Duration::try_from_secs_f64(seconds)
        .map_err(|_| Trouble::usage("`--interval` must be a number of seconds"))?;
    let mut rounds = stats.times;
    loop {
        let seen = look(store, scope.clone(), stats.rows).await;
        rounds = rounds.map(|rounds| rounds.saturating_sub(1));
        if output.is_terminal() && !output.is_json() {
            output.text(CLEAR)?;
        }
        match seen {
            Ok(look) => frame(&look, stats.keys, interval, output)?,
            // The store may be back in the next round.
            Err(error) if rounds != Some(0) && error.kind() == idem_operate_kit::Kind::Unreachable => {
                output.line(error.to_string())?;
            }
            Err(error) => return Err(error.into()),
        }
        output.flush()?;
        if rounds == Some(0) {
            return Ok(End::Done);
        }
        tokio::time::sleep(interval).await;
    }
}

fn frame(look: &Look, keys: bool, interval: Duration, output: &mut Output) -> std::io::Result<()> {
    if output.is_json() {
        let open = look.open.iter().map(|(listed, now)| record_json(listed, *now, keys));
        let mut frame = look.counted.json();
        frame["open"] = open.collect::<Vec<_>>().into();
        return output.line(frame.to_string());
    }
    output.line(format!("{}  every {interval:?}, until Ctrl-C", date(look.counted.now)))?;
    print(&look.counted, output)?;
    if look.open.is_empty() {
        return Ok(());
    }
    output.line("")?;
    let rows: Vec<_> = look.open.iter().map(|(listed, now)| record_row(listed, *now, keys)).collect();
    output.table(record_head(keys), &rows)
}
