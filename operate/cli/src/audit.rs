//! `idem audit`.

use clap::Args;
use idem_operate_kit::Access;
use idem_operate_kit::audit::entries;

use super::end::{Answer, End};
use super::output::Output;

#[derive(Args)]
pub(crate) struct Audit {
    /// Only entries about this operation
    #[arg(long)]
    scope: Option<String>,
    /// Only entries about the record that `idem list` shows with this digest
    #[arg(long, value_name = "HEX")]
    digest: Option<String>,
    /// How many of the newest entries to list; 0 for all
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
}

pub(crate) async fn run(audit: &Audit, access: &Access, output: &mut Output) -> Answer {
    let digest = audit.digest.as_ref().map(|digest| digest.trim().to_ascii_lowercase());
    let mut entries = entries(access, digest.as_deref()).await?;
    if let Some(scope) = &audit.scope {
        entries.retain(|entry| entry.what["scope"] == scope.as_str());
    }
    if audit.limit > 0 {
        entries.truncate(audit.limit);
    }
    if entries.is_empty() {
        return Ok(End::Nothing);
    }
    if output.is_json() {
        entries.iter().try_for_each(|entry| output.line(entry.what.to_string()))?;
        return Ok(End::Done);
    }
    let fields = ["at", "by", "action", "scope", "digest", "was", "outcome", "reason"];
    let rows: Vec<_> = entries.iter().map(|entry| fields.map(|field| entry.text(field))).collect();
    output.table(["AT", "BY", "ACTION", "SCOPE", "DIGEST", "WAS", "OUTCOME", "REASON"], &rows)?;
    Ok(End::Done)
}
