//! Many records at once: shown first, asked once, and each settled only if it is still as it was shown.

use clap::Args;
use idem_core::Scope;
use idem_core::listing::Listed;
use idem_core::protocol::{Resolution, Seen, State, Timestamp};

use super::access::Access;
use super::audit::Trail;
use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::filter::Filter;
use super::output::{Output, name_json, record_head, record_row};
use super::settle::{settle, word};
use super::target::Target;

#[derive(Args)]
pub(crate) struct Bulk {
    /// All records that fit, and no single one
    #[arg(long, conflicts_with_all = ["key", "digest"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// Show what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Bulk {
    /// Whether many records are meant, and not the target.
    pub(crate) fn is_meant(&self, target: &Target) -> Answer<bool> {
        if !self.all && !self.filter.is_empty() {
            return Err(Trouble::new(
                End::Usage,
                "`--state`, `--older`, `--lapsed` and `--expired` go with `--all`",
            ));
        }
        if self.all && !target.is_empty() {
            return Err(Trouble::new(End::Usage, "`--all` takes no key and no digest"));
        }
        Ok(self.all)
    }

    pub(crate) const fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Whether it is said which of all records are meant.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.filter.is_empty()
    }

    /// The records that are meant: of these states, or of those that were said where there are none.
    pub(crate) async fn chosen(
        &self,
        access: &Access,
        states: Vec<State>,
        scope: Option<Scope>,
    ) -> Answer<(Vec<Listed>, Timestamp)> {
        let said = self.filter.states();
        if !states.is_empty() && said.iter().any(|state| !states.contains(state)) {
            return Err(Trouble::new(End::Usage, "only keys in doubt can be resolved"));
        }
        self.filter.chosen(access, if states.is_empty() { said } else { states }, scope).await
    }
}

/// Shows them, asks, and settles each.
pub(crate) async fn settle_all(
    bulk: &Bulk,
    (chosen, now): &(Vec<Listed>, Timestamp),
    question: &str,
    decide: impl Fn(Seen) -> Resolution,
    (access, trail, confirm): (&Access, &Trail, &Confirm),
    output: &mut Output,
) -> Answer {
    if chosen.is_empty() {
        return Ok(End::Nothing);
    }
    if !output.is_json() {
        let rows: Vec<_> = chosen.iter().map(|listed| record_row(listed, *now, false)).collect();
        output.table(record_head(false), &rows)?;
        output.flush()?;
    }
    if bulk.dry_run {
        if !output.is_json() {
            output.line(format!("{question} Nothing was done: this is a dry run."))?;
            return Ok(End::Done);
        }
        for listed in chosen {
            let mut line = name_json(&listed.key, false);
            line["would_be"] = word(&decide(Seen::of(&listed.record))).into();
            output.line(line.to_string())?;
        }
        return Ok(End::Done);
    }
    confirm.ask(question)?;
    let mut left = 0;
    for listed in chosen {
        let seen = Seen::of(&listed.record);
        let resolution = decide(seen);
        let outcome = match settle(access, trail, &listed.key, seen, resolution.clone()).await {
            Ok(()) => word(&resolution),
            Err(Trouble::Said(End::Refused | End::Nothing, _)) => {
                left += 1;
                "changed meanwhile"
            }
            Err(trouble) => return Err(trouble),
        };
        if output.is_json() {
            let mut line = name_json(&listed.key, false);
            line["outcome"] = outcome.into();
            output.line(line.to_string())?;
        }
    }
    if !output.is_json() {
        output.line(format!(
            "{} settled, {left} had changed meanwhile and were left alone",
            chosen.len() - left
        ))?;
    }
    Ok(if left > 0 { End::Refused } else { End::Done })
}
