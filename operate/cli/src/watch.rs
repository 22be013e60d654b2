//! `idem watch`: prints the figures and the open records again and again, until it is interrupted.

use std::time::Duration;

use clap::Args;
use idem_core::listing::Listed;
use idem_core::protocol::{State, Timestamp};
use idem_core::{Scope, StoreError};
use idem_runtime::DynStore;

use super::end::{Answer, End, Trouble};
use super::figures::Counted;
use super::output::{Output, date, is_over, record_head, record_row};
use super::target;
use super::walk::Walk;

/// Moves the cursor to the upper left corner and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

#[derive(Args)]
pub(crate) struct Watch {
    /// Only this operation
    #[arg(long)]
    scope: Option<String>,
    /// Seconds between two rounds; each round reads the whole store. 2 unless given, and 60 on DynamoDB, where a round
    /// costs the read units of the whole table
    #[arg(long, value_name = "SECONDS")]
    interval: Option<f64>,
    /// How many records to show of those in flight and in doubt, the oldest first
    #[arg(long, default_value_t = 20, value_name = "N")]
    rows: usize,
    /// How many rounds to run; until it is interrupted, unless given
    #[arg(long, value_name = "N")]
    times: Option<u64>,
    /// Show keys, which are private
    #[arg(long)]
    keys: bool,
}

/// The result of one round.
struct Look {
    now: Timestamp,
    counted: Counted,
    /// In doubt and in flight, the oldest first.
    open: Vec<Listed>,
}

async fn look(store: &DynStore, scope: Option<Scope>, rows: usize) -> Result<Look, StoreError> {
    let mut look = Look { now: Timestamp::default(), counted: Counted::default(), open: Vec::new() };
    let mut walk = Walk::new(store, Vec::new(), scope);
    while let Some(page) = walk.page().await? {
        look.now = page.now;
        look.counted.add(&page);
        let is_open = |listed: &Listed| matches!(listed.record.state, State::InFlight | State::InDoubt);
        let open = page.records.iter().filter(|listed| is_open(listed) && !is_over(&listed.record, page.now));
        look.open.extend(open.cloned());
        look.open.sort_by_key(|listed| (listed.record.state == State::InFlight, listed.record.created_at));
        look.open.truncate(rows);
    }
    Ok(look)
}

pub(crate) async fn run(watch: &Watch, store: &DynStore, costly: bool, output: &mut Output) -> Answer {
    let scope = watch.scope.as_deref().map(target::scope).transpose()?;
    let interval =
        Duration::try_from_secs_f64(watch.interval.unwrap_or(if costly { 60.0 } else { 2.0 }).max(0.1))
            .map_err(|_| Trouble::new(End::Usage, "`--interval` must be a number of seconds"))?;
    let mut left = watch.times;
    loop {
        let seen = look(store, scope.clone(), watch.rows).await;
        left = left.map(|left| left.saturating_sub(1));
        if output.is_terminal() && !output.is_json() {
            output.text(CLEAR)?;
        }
        match seen {
            Ok(look) if output.is_json() => {
                let open =
                    look.open.iter().map(|listed| super::output::record_json(listed, look.now, watch.keys));
                let mut frame = look.counted.json();
                frame["open"] = open.collect::<Vec<_>>().into();
                output.line(frame.to_string())?;
            }
            Ok(look) => {
                output.line(format!("{}  every {interval:?}, until Ctrl-C", date(look.now)))?;
                look.counted.print(output)?;
                if !look.open.is_empty() {
                    output.line("")?;
                    let rows: Vec<_> =
                        look.open.iter().map(|listed| record_row(listed, look.now, watch.keys)).collect();
                    output.table(record_head(watch.keys), &rows)?;
                }
            }
            // The store may be back in the next round.
            Err(error) if left != Some(0) && error.is_transient() => output.line(error.to_string())?,
            Err(error) => return Err(error.into()),
        }
        output.flush()?;
        if left == Some(0) {
            return Ok(End::Done);
        }
        tokio::time::sleep(interval).await;
    }
}
