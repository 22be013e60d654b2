//! `idem show`.

use clap::Args;
use idem_core::Store as _;
use idem_core::listing::{Listed, ListedResult};
use idem_core::protocol::StoredResult;
use idem_operate_kit::show::{json, lines, value_text};
use idem_operate_kit::text::{remark_of, safe};
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
        return Err(evidence::absent(access).await.into());
    };
    if output.is_json() {
        output.line(json(&key, record, now, show.keys, show.result))?;
        return Ok(End::Done);
    }
    let (result, steps) = (record.result.clone(), record.steps.clone());
    let listed = Listed::new(key, record);
    let format = result.as_ref().and_then(StoredResult::format).map(|format| ("format", format.to_string()));
    for (name, text) in lines(&listed, now, show.keys).into_iter().chain(format) {
        output.line(format!("{name:<13}{text}"))?;
    }
    for (number, step) in steps.iter().enumerate() {
        let text = format!("{}  {}", safe(&step.name), remark_of(ListedResult::of(&step.result)));
        output.line(format!("{:<13}{}", format!("step {}", number + 1), text.trim_end()))?;
    }
    if show.result
        && let Some(StoredResult::Value(bytes)) = &result
    {
        output.line(value_text(bytes))?;
    }
    Ok(End::Done)
}
