//! `idem stats`.

use clap::{Args, ValueEnum};
use idem_runtime::DynStore;

use super::end::{Answer, End};
use super::figures::count;
use super::output::Output;
use super::prometheus;
use super::target;

#[derive(Args)]
pub(crate) struct Stats {
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// The output format: prometheus is for the textfile collector of Prometheus' node exporter
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
    Prometheus,
}

pub(crate) async fn run(stats: &Stats, store: &DynStore, output: &mut Output) -> Answer {
    let scope = stats.scope.as_deref().map(target::scope).transpose()?;
    let counted = count(store, scope).await?;
    match stats.format {
        Format::Prometheus => {
            output.text(&prometheus::text(&counted))?;
            return Ok(End::Done);
        }
        Format::Table if !output.is_json() => counted.print(output)?,
        _ => output.line(counted.json().to_string())?,
    }
    Ok(if counted.is_empty() { End::Nothing } else { End::Done })
}
