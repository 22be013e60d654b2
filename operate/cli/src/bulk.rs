//! Settles many records at once: shows them, asks once, and settles each record only if it is still as it was shown.

use clap::Args;
use idem_core::listing::Listed;
use idem_core::protocol::{Resolution, Seen, State, Timestamp};
use idem_core::{RecordKey, Scope};

use super::access::Access;
use super::audit::Trail;
use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::filter::Filter;
use super::output::{Output, name_json, record_head, record_row};
use super::settle::{changed, forgets, put_in_doubt, settle, word};
use super::target::Target;

#[derive(Args)]
pub(crate) struct Bulk {
    /// All records that match, instead of a single one
    #[arg(long, conflicts_with_all = ["key", "digest"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// Show what would be done, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Bulk {
    /// Whether `--all` is given, and not a target.
    pub(crate) fn is_meant(&self, target: &Target) -> Answer<bool> {
        if !self.all && !self.filter.is_empty() {
            return Err(Trouble::new(
                End::Usage,
                "`--state`, `--older`, `--lapsed` and `--expired` need `--all`",
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

    /// Whether no filter is given.
    pub(crate) const fn is_unlimited(&self) -> bool {
        self.filter.is_empty()
    }

    /// The records that match, in these states. If `states` is empty, the filter's states apply.
    pub(crate) async fn chosen(
        &self,
        access: &Access,
        states: Vec<State>,
        scope: Option<Scope>,
    ) -> Answer<(Vec<Listed>, Timestamp)> {
        let said = self.filter.states();
        if !states.is_empty() && said.iter().any(|state| !states.contains(state)) {
            let text = "only keys in doubt, or in flight with an expired lease, can be resolved";
            return Err(Trouble::new(End::Usage, text));
        }
        self.filter.chosen(access, if said.is_empty() { states } else { said }, scope).await
    }
}

/// Puts a key in doubt that was shown in flight with an expired lease, if it is still at the same attempt.
async fn doubted(access: &Access, key: &RecordKey, shown: Seen) -> Answer<Seen> {
    if shown.state == State::InDoubt {
        return Ok(shown);
    }
    let seen = put_in_doubt(&access.store, key).await?;
    if seen.state == State::InDoubt && (seen.fence, seen.attempt) == (shown.fence, shown.attempt) {
        return Ok(seen);
    }
    Err(changed(Some(seen.state)))
}

/// Shows the records, asks, and settles each.
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
        let shown = Seen::of(&listed.record);
        let resolution = decide(shown);
        let settled = async {
            let seen = if forgets(&resolution) { shown } else { doubted(access, &listed.key, shown).await? };
            settle(access, trail, &listed.key, seen, resolution.clone()).await
        };
        let outcome = match settled.await {
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
            "{} settled, {left} had changed meanwhile and were not touched",
            chosen.len() - left
        ))?;
    }
    Ok(if left > 0 { End::Refused } else { End::Done })
}
