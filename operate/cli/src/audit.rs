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
    let fields = ["at", "by", "action", "scope", "digest", "was", "outcome", "reason"];
    output.objects(fields, &entries.into_iter().map(|entry| entry.what).collect::<Vec<_>>())?;
    Ok(End::Done)
}
