//! `idem audit`.

use clap::Args;
use idem_operate_kit::Access;
use idem_operate_kit::audit::entries;
use idem_operate_kit::text::date;

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
        for entry in &entries {
            let mut line = entry.what.clone();
            line["at"] = date(entry.at).into();
            output.line(line.to_string())?;
        }
        return Ok(End::Done);
    }
    let fields = ["by", "action", "scope", "digest", "was", "outcome", "reason"];
    let rows: Vec<[String; 8]> = entries
        .iter()
        .map(|entry| {
            let mut row: [String; 8] = Default::default();
            row[0] = date(entry.at);
            for (place, field) in row[1..].iter_mut().zip(fields) {
                *place = entry.text(field);
            }
            row
        })
        .collect();
    output.table(["AT", "BY", "ACTION", "SCOPE", "DIGEST", "WAS", "OUTCOME", "REASON"], &rows)?;
    Ok(End::Done)
}
