//! `idem resolve`, `idem forget` and `idem record`: a person's decision about one record or many, on one path.
//!
//! The path is: choose the records, check the decision, ask, and settle each record only if it is still as it was shown. Nothing is
//! written before the answer.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use idem_core::listing::Listed;
use idem_core::protocol::{Owner, Record as StoredRecord, State, Timestamp};
use idem_core::{RecordKey, Store as _};
use idem_operate_kit::act::{self, Decision, Shown};
use idem_operate_kit::text::{name_json, record_head, record_row};
use idem_operate_kit::{Access, Kind, evidence};

use super::decision::Decider;
use super::end::{Answer, End, Trouble};
use super::filter::{Filter, older};
use super::output::Output;
use super::target::{Target, called};
use super::word::{HELP, Word};

/// The records that a decision is about.
#[derive(Args)]
pub(crate) struct Choice {
    #[command(flatten)]
    target: Target,
    /// All records that match, instead of a single one
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

/// Records a result for a key without a record: after a store was lost, or before calls move to another one.
#[derive(Args)]
pub(crate) struct Record {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    word: Word,
    /// How long the result is kept
    #[arg(long, value_name = "SPAN", value_parser = older, default_value = "24h")]
    ttl: Duration,
    #[command(flatten)]
    decider: Decider,
}

/// The chosen records, and how each is shown.
enum Chosen {
    One(RecordKey, Shown, Option<Box<StoredRecord>>),
    Many(Vec<Listed>, Timestamp),
}

impl Choice {
    async fn choose(&self, decision: &Decision, access: &Access) -> Answer<Chosen> {
        if !self.all && !self.filter.is_empty() {
            let text = "`--state`, `--older`, `--lapsed`, `--expired` and `--key-prefix` need `--all`";
            return Err(Trouble::usage(text));
        }
        if !self.all {
            let key = self.target.find(access).await?;
            return match act::look(access, &key).await? {
                Some((shown, record)) => Ok(Chosen::One(key, shown, record.map(Box::new))),
                None => Err(evidence::absent(access, Some(key.scope().clone())).await.into()),
            };
        }
        if !self.target.is_empty() {
            return Err(Trouble::usage("`--all` takes no key and no digest"));
        }
        let scope = self.target.scope()?;
        let mut states = self.filter.states();
        if !matches!(decision, Decision::Forget) {
            let resolvable = [State::InDoubt, State::InFlight];
            if states.iter().any(|state| !resolvable.contains(state)) {
                let text = "only keys in doubt, or in flight with an expired lease, can be resolved";
                return Err(Trouble::usage(text));
            }
            if states.is_empty() {
                states.extend(resolvable);
            }
        } else if scope.is_none() && self.filter.is_empty() {
            let text = "this would delete every record: give `--scope`, `--key-prefix`, `--state`, `--older` or `--lapsed`";
            return Err(Trouble::usage(text));
        }
        let (mut records, now) = self.filter.chosen(access, states, scope).await?;
        records.retain(|listed| decision.check(Shown::of(&listed.record, now)).is_ok());
        Ok(Chosen::Many(records, now))
    }
}

impl Chosen {
    fn records(&self) -> Vec<(&RecordKey, Shown)> {
        match self {
            Self::One(key, shown, _) => vec![(key, *shown)],
            Self::Many(records, now) => {
                records.iter().map(|listed| (&listed.key, Shown::of(&listed.record, *now))).collect()
            }
        }
    }

    /// Refuses a result that the service could not read.
    async fn check(&self, word: &Word, access: &Access) -> Answer<()> {
        let mut scopes = HashSet::new();
        for (key, _) in self.records() {
            let record = match self {
                Self::One(_, _, record) => record.as_deref().cloned(),
                Self::Many(..) if !scopes.insert(key.scope().as_str()) => None,
                Self::Many(..) => access.store.get(key).await?,
            };
            if let Some(record) = record {
                word.check(evidence::form(access, key, &record).await?, access).await?;
            }
        }
        Ok(())
    }

    /// What the decision does to them.
    fn question(&self, decision: &Decision, means: &str) -> String {
        let subject = match self {
            Self::One(key, ..) => called(key),
            Self::Many(records, _) => format!("{} records", records.len()),
        };
        if !matches!(decision, Decision::Forget) {
            return format!("This records {subject} as {means}.");
        }
        let (state, more) = match self {
            Self::One(_, shown, _) if shown.word() == State::InFlight.as_str() => (
                ", which is in_flight".to_owned(),
                " Its worker may be running: it will lose its claim and its result.",
            ),
            Self::One(_, shown, _) => (format!(", which is {}", shown.word()), ""),
            Self::Many(..) => (String::new(), ""),
        };
        format!("This deletes {subject}{state}: the next call runs the body.{more}")
    }
}

pub(crate) async fn resolve(resolve: &Resolve, access: &Access, output: &mut Output) -> Answer {
    let decision = resolve.word.decision()?;
    let chosen = resolve.choice.choose(&decision, access).await?;
    if decision.records() {
        chosen.check(&resolve.word, access).await?;
    }
    carry_out(&chosen, (&decision, resolve.word.means()), &resolve.decider, access, output).await
}

pub(crate) async fn forget(forget: &Forget, access: &Access, output: &mut Output) -> Answer {
    let decision = Decision::Forget;
    let chosen = forget.choice.choose(&decision, access).await?;
    carry_out(&chosen, (&decision, "forgotten"), &forget.decider, access, output).await
}

async fn carry_out(
    chosen: &Chosen,
    (decision, means): (&Decision, &str),
    decider: &Decider,
    access: &Access,
    output: &mut Output,
) -> Answer {
    let records = chosen.records();
    if let Chosen::One(_, shown, _) = chosen {
        decision.check(*shown)?;
    }
    if records.is_empty() {
        return Ok(End::Nothing);
    }
    if let (Chosen::Many(listed, now), false) = (chosen, output.is_json()) {
        let rows: Vec<_> = listed.iter().map(|listed| record_row(listed, *now, false)).collect();
        output.table(record_head(false), &rows)?;
        output.flush()?;
    }
    let question = chosen.question(decision, means);
    if decider.dry_run {
        for (key, _) in records.iter().filter(|_| output.is_json()).collect::<Vec<_>>() {
            report(key, "would_be", decision.word(), output)?;
        }
        if !output.is_json() {
            output.line(format!("{question} Nothing was done: this is a dry run."))?;
        }
        return Ok(End::Done);
    }
    decider.ask(&question)?;
    let (trail, mut untouched) = (decider.trail(), 0);
    for (key, shown) in &records {
        let outcome = match act::settle(access, &trail, key, *shown, decision).await {
            Ok(()) => decision.word(),
            Err(error)
                if matches!(chosen, Chosen::Many(..))
                    && matches!(error.kind(), Kind::Refused | Kind::Absent) =>
            {
                untouched += 1;
                "changed meanwhile"
            }
            Err(error) => return Err(error.into()),
        };
        if output.is_json() {
            report(key, "outcome", outcome, output)?;
        }
    }
    match chosen {
        _ if output.is_json() => {}
        Chosen::One(key, ..) => output.line(format!("{} is {means}", called(key)))?,
        Chosen::Many(..) => output.line(format!(
            "{} settled, {untouched} had changed meanwhile and were not touched",
            records.len() - untouched
        ))?,
    }
    Ok(if untouched > 0 { End::Refused } else { End::Done })
}

fn report(key: &RecordKey, field: &str, word: &str, output: &mut Output) -> Answer<()> {
    let mut line = name_json(key, false);
    line[field] = word.into();
    Ok(output.line(line.to_string())?)
}

pub(crate) async fn record(record: &Record, access: &Access, output: &mut Output) -> Answer {
    let decision = record.word.decision()?;
    let Decision::Record(verdict, result) = &decision else {
        return Err(Trouble::usage("missing result: give `--completed`, `--failed` or `--http`"));
    };
    let key = record.target.exact(access)?;
    evidence::is_findable(access, &key).await?;
    if let Some(there) = access.store.get(&key).await? {
        return Err(act::is_there(there.state).into());
    }
    let nothing = StoredRecord::new(State::Released, Owner::NOBODY, idem_core::Fence::default());
    record.word.check(evidence::form(access, &key, &nothing).await?, access).await?;
    let question = format!("This records {} as {}.", called(&key), record.word.means());
    if record.decider.dry_run {
        output.line(format!("{question} Nothing was done: this is a dry run."))?;
        return Ok(End::Done);
    }
    record.decider.ask(&question)?;
    act::record(access, &record.decider.trail(), &key, (*verdict, result), record.ttl).await?;
    if output.is_json() {
        report(&key, "outcome", decision.word(), output)?;
    } else {
        output.line(format!("{} is {}", called(&key), record.word.means()))?;
    }
    Ok(End::Done)
}
