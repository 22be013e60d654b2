//! `idem show`.

use clap::Args;
use idem_core::Store as _;
use idem_core::protocol::StoredResult;
use idem_operate_kit::show::{json, lines, value_text};
use idem_operate_kit::{Access, evidence, walk};

use super::end::{Answer, End};
use super::output::Output;
use super::target::Target;

#[derive(Args)]
pub(crate) struct Show {
    #[command(flatten)]
    target: Target,
    /// Also show the result, which may be private
    #[arg(long)]
    result: bool,
    /// Also show the key, which is private
    #[arg(long)]
    keys: bool,
}

pub(crate) async fn run(show: &Show, access: &Access, output: &mut Output) -> Answer {
    let key = show.target.find(access).await?;
    let now = walk::now(&access.store).await?;
    let Some(record) = evidence::readable(&access.store).get(&key).await? else {
        return Err(evidence::absent(access).await);
    };
    if output.is_json() {
        output.line(json(&key, record, now, show.keys, show.result))?;
        return Ok(End::Done);
    }
    for (name, text) in lines(&key, &record, now, show.keys) {
        output.line(format!("{name:<13}{text}"))?;
    }
    if show.result
        && let Some(StoredResult::Value(bytes)) = &record.result
    {
        output.line(value_text(bytes))?;
    }
    Ok(End::Done)
}
