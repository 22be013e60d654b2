//! `idem resolve`, `idem forget` and `idem record`: the same code carries out a person's decision about one
//! record or about many.
//!
//! The code chooses the records, checks the decision and asks the person. Before the person has confirmed, on
//! the terminal or with `--yes`, the code writes nothing. It settles a record only if the record is still as
//! it was shown. For `record`, the key must still have no record.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use idem_core::protocol::State;
use idem_core::{RecordKey, Store as _};
use idem_operate_kit::act::{self, Decision, Shown};
use idem_operate_kit::text::{name_json, record_head, record_row};
use idem_operate_kit::{Access, Error, Kind, evidence};

use super::decision::Decider;
use super::end::{Answer, End};
use super::filter::{Filter, span};
use super::output::Output;
use super::target::{Target, called};
use super::word::{HELP, Word};

/// The records that a decision concerns.
#[derive(Args)]
pub(crate) struct Choice {
    #[command(flatten)]
    target: Target,
    /// All records that match, instead of a single record
    #[arg(long, conflicts_with_all = ["key", "digest"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
}

/// Records what happened to a call whose worker died under `on_crash = "in_doubt"`.
#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Resolve {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    word: Word,
    #[command(flatten)]
    decider: Decider,
}

#[derive(Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    decider: Decider,
}

/// Records a result for a key without a record: after a store was lost, or before calls move to another
/// store.
#[derive(Args)]
pub(crate) struct Record {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    word: Word,
    /// How long the result is kept
    #[arg(long, value_name = "SPAN", value_parser = span, default_value = "24h")]
    ttl: Duration,
    #[command(flatten)]
    decider: Decider,
}

/// The chosen records, each with what the person was shown.
struct Chosen {
    records: Vec<(RecordKey, Shown)>,
    /// A table of the records, if they were chosen by `--all`.
    rows: Option<Vec<[String; 6]>>,
}

impl Choice {
    async fn choose(&self, decision: &Decision, access: &Access) -> Answer<Chosen> {
        let scope = self.target.scope()?;
        if let Some(scope) = &scope {
            act::check_scope(scope)?;
        }
        if !self.all && !self.filter.is_empty() {
            let text = "`--state`, `--older`, `--lapsed` and `--key-prefix` need `--all`";
            return Err(Error::usage(text));
        }
        if !self.all {
            let key = self.target.find(access).await?;
            let Some((shown, _)) = act::look(access, &key).await? else {
                return Err(evidence::absent(access).await);
            };
            return Ok(Chosen { records: vec![(key, shown)], rows: None });
        }
        if self.filter.names_unreadable() {
            let text = "records that cannot be read are forgotten one by one: `idem list --state unreadable` shows their digests";
            return Err(Error::usage(text));
        }
        let mut states = self.filter.states();
        if !matches!(decision, Decision::Forget) {
            let resolvable = [State::InDoubt, State::InFlight];
            if states.iter().any(|state| !resolvable.contains(state)) {
                let text = "only keys in doubt, or in flight with an expired lease, can be resolved";
                return Err(Error::usage(text));
            }
            if states.is_empty() {
                states.extend(resolvable);
            }
        } else if scope.is_none() && self.filter.is_empty() {
            let text = "this would delete every record: give `--scope`, `--key-prefix`, `--state`, `--older` or `--lapsed`";
            return Err(Error::usage(text));
        }
        let chosen = self.filter.chosen(access, states, scope).await?.into_iter();
        // A lease counts as expired if it had expired when its record was read.
        let chosen = chosen.map(|(listed, now)| (Shown::of(&listed.record, now), listed, now));
        let chosen = chosen.filter(|(shown, ..)| decision.check(*shown).is_ok());
        let (records, rows) = chosen
            .map(|(shown, listed, now)| {
                let row = record_row(&listed, now, false);
                ((listed.key, shown), row)
            })
            .unzip();
        Ok(Chosen { records, rows: Some(rows) })
    }
}

impl Chosen {
    /// Refuses a result that the service could not read.
    async fn check(&self, word: &Word, access: &Access) -> Answer<()> {
        let mut scopes = HashSet::new();
        for (key, _) in &self.records {
            if !scopes.insert(key.scope()) {
                continue;
            }
            let form = evidence::of_scope(access, key.scope()).await?;
            let form = match access.store.get(key).await? {
                Some(record) => evidence::with_steps(form, &record),
                None => form,
            };
            word.check(form, access).await?;
        }
        Ok(())
    }

    /// What the decision does to the records, as text.
    fn question(&self, decision: &Decision) -> String {
        let one = self.records.first().filter(|_| self.rows.is_none());
        let subject = match one {
            Some((key, _)) => called(key),
            None => format!("{} records", self.records.len()),
        };
        if !matches!(decision, Decision::Forget) {
            return format!("This records {subject} as {}.", decision.means());
        }
        let state = one.map(|(_, shown)| format!(", which is {}", shown.word())).unwrap_or_default();
        let warning =
            one.and_then(|(_, shown)| shown.warning()).map(|text| format!(" {text}")).unwrap_or_default();
        format!("This deletes {subject}{state}: the next call runs the body.{warning}")
    }

    /// Asks the person, and settles the records.
    async fn settle(
        &self,
        decision: &Decision,
        decider: &Decider,
        access: &Access,
        output: &mut Output,
    ) -> Answer {
        if self.records.is_empty() {
            return Ok(End::Nothing);
        }
        if !decider.dry_run {
            output.must_arrive();
        }
        if let (Some(rows), false) = (&self.rows, output.is_json()) {
            output.table(record_head(false), rows)?;
            output.flush()?;
        }
        let question = self.question(decision);
        if decider.dry_run {
            if !output.is_json() {
                output.line(format!("{question} Nothing was done: this is a dry run."))?;
                return Ok(End::Done);
            }
            for (key, _) in &self.records {
                report(key, "would_be", decision.word(), output)?;
            }
            return Ok(End::Done);
        }
        decider.ask(&question)?;
        // If the reader of the output goes away, the command still carries out the decision.
        let (trail, mut untouched, mut reported) = (decider.trail(), 0, Ok(()));
        for (key, shown) in &self.records {
            let outcome = match act::settle(access, &trail, key, *shown, decision).await {
                Ok(()) => decision.word(),
                Err(error) if self.rows.is_some() && matches!(error.kind(), Kind::Refused | Kind::Absent) => {
                    untouched += 1;
                    "changed meanwhile"
                }
                Err(error) => return Err(error),
            };
            if output.is_json() && reported.is_ok() {
                reported = report(key, "outcome", outcome, output);
            }
        }
        reported?;
        match (&self.rows, self.records.as_slice()) {
            _ if output.is_json() => {}
            (None, [(key, _), ..]) => output.line(format!("{} is {}", called(key), decision.means()))?,
            (_, records) => output.line(format!(
                "{} settled, {untouched} had changed meanwhile and were not touched",
                records.len() - untouched
            ))?,
        }
        Ok(if untouched > 0 { End::Refused } else { End::Done })
    }
}

pub(crate) async fn resolve(resolve: &Resolve, access: &Access, output: &mut Output) -> Answer {
    let decision = resolve.word.decision()?;
    let chosen = resolve.choice.choose(&decision, access).await?;
    for (_, shown) in &chosen.records {
        decision.check(*shown)?;
    }
    if decision.records() {
        chosen.check(&resolve.word, access).await?;
    }
    chosen.settle(&decision, &resolve.decider, access, output).await
}

pub(crate) async fn forget(forget: &Forget, access: &Access, output: &mut Output) -> Answer {
    let chosen = forget.choice.choose(&Decision::Forget, access).await?;
    chosen.settle(&Decision::Forget, &forget.decider, access, output).await
}

pub(crate) async fn record(record: &Record, access: &Access, output: &mut Output) -> Answer {
    let decision = record.word.decision()?;
    if !decision.records() {
        return Err(Error::usage("missing result: give `--completed`, `--failed` or `--http`"));
    }
    let key = record.target.exact(access)?;
    act::check_scope(key.scope())?;
    evidence::is_findable(access).await?;
    act::check_free(access, &key).await?;
    let chosen = Chosen { records: vec![(key, Shown::Absent(record.ttl))], rows: None };
    chosen.check(&record.word, access).await?;
    chosen.settle(&decision, &record.decider, access, output).await
}

fn report(key: &RecordKey, field: &str, word: &str, output: &mut Output) -> Answer<()> {
    let mut line = name_json(key, false);
    line[field] = word.into();
    output.line(line.to_string())
}
