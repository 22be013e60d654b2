//! `idem export`: whole records, one JSON object per line.

use clap::Args;
use idem_core::{Store as _, StoreErrorKind};

use super::access::Access;
use super::end::{Answer, End};
use super::evidence;
use super::filter::Filter;
use super::output::{Output, name_json};
use super::show;
use super::target;

#[derive(Args)]
pub(crate) struct Export {
    #[command(flatten)]
    filter: Filter,
    /// Only records of this operation
    #[arg(long)]
    scope: Option<String>,
    /// With keys, which are private
    #[arg(long)]
    keys: bool,
    /// With results, which may be private
    #[arg(long)]
    results: bool,
    /// Print only how many there are
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(export: &Export, access: &Access, output: &mut Output) -> Answer {
    let scope = export.scope.as_deref().map(target::scope).transpose()?;
    let (chosen, now) = export.filter.chosen(access, export.filter.states(), scope).await?;
    if export.dry_run {
        output.line(match output.is_json() {
            true => serde_json::json!({ "records": chosen.len() }).to_string(),
            false => format!("{} records would be exported", chosen.len()),
        })?;
        return Ok(if chosen.is_empty() { End::Nothing } else { End::Done });
    }
    let store = evidence::readable(&access.store);
    let mut exported = 0;
    for listed in chosen {
        let line = match store.get(&listed.key).await {
            // Deleted while others were exported.
            Ok(None) => continue,
            Ok(Some(record)) => show::json(&listed.key, record, now, export.keys, export.results),
            Err(error) if error.kind() == StoreErrorKind::CorruptRecord => {
                let mut line = name_json(&listed.key, export.keys);
                line["state"] = "unreadable".into();
                line["error"] = error.to_string().into();
                line.to_string()
            }
            Err(error) => return Err(error.into()),
        };
        output.line(line)?;
        exported += 1;
    }
    Ok(if exported == 0 { End::Nothing } else { End::Done })
}
