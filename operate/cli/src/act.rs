//! `idem resolve`, `idem forget` and `idem record`: a person's decision about one record or many, on one path.
//!
//! The path is: choose the records, check the decision, ask, and settle each record only if it is still as it was shown. Nothing is
//! written before the answer.

use std::collections::HashSet;
use std::time::Duration;

use clap::Args;
use idem_core::listing::Listed;
use idem_core::protocol::{Record as StoredRecord, State, Timestamp};
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
    pub(crate) decider: Decider,
}

#[derive(Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    pub(crate) decider: Decider,
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
    pub(crate) decider: Decider,
}

/// The chosen records, and how each is shown.
enum Chosen {
    One(RecordKey, Shown, Option<Box<StoredRecord>>),
    /// Each with the store's time when it was read.
    Many(Vec<(Listed, Timestamp)>),
}

impl Choice {
    async fn choose(&self, decision: &Decision, access: &Access) -> Answer<Chosen> {
        let scope = self.target.scope()?;
        if let Some(scope) = &scope {
            act::check_scope(scope)?;
        }
        if !self.all && !self.filter.is_empty() {
            let text = "`--state`, `--older`, `--lapsed` and `--key-prefix` need `--all`";
            return Err(Trouble::usage(text));
        }
        if !self.all {
            let key = self.target.find(access).await?;
            return match act::look(access, &key).await? {
                Some((shown, record)) => Ok(Chosen::One(key, shown, record.map(Box::new))),
                None => Err(evidence::absent(access).await.into()),
            };
        }
        if self.filter.names_unreadable() {
            let text = "records that cannot be read are forgotten one by one: `idem list --state unreadable` shows their digests";
            return Err(Trouble::usage(text));
        }
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
        let mut records = self.filter.chosen(access, states, scope).await?;
        records.retain(|(listed, now)| decision.check(Shown::of(&listed.record, *now)).is_ok());
        Ok(Chosen::Many(records))
    }
}

impl Chosen {
    fn records(&self) -> Vec<(&RecordKey, Shown)> {
        match self {
            Self::One(key, shown, _) => vec![(key, *shown)],
            Self::Many(records) => {
                records.iter().map(|(listed, now)| (&listed.key, Shown::of(&listed.record, *now))).collect()
            }
        }
    }

    /// Refuses a result that the service could not read.
    async fn check(&self, word: &Word, access: &Access) -> Answer<()> {
        let mut scopes = HashSet::new();
        for (key, _) in self.records() {
            if !scopes.insert(key.scope()) {
                continue;
            }
            let mut form = evidence::of_scope(access, key.scope()).await?;
            let record = match self {
                Self::One(_, _, record) => record.as_deref().cloned(),
                Self::Many(_) => access.store.get(key).await?,
            };
            if let Some(record) = record {
                form = evidence::with_steps(form, &record);
            }
            word.check(form, access).await?;
        }
        Ok(())
    }

    /// What the decision does to them.
    fn question(&self, decision: &Decision, means: &str) -> String {
        let subject = match self {
            Self::One(key, ..) => called(key),
            Self::Many(records) => format!("{} records", records.len()),
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
            Self::Many(_) => (String::new(), ""),
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
    if let (Chosen::Many(records), false) = (chosen, output.is_json()) {
        let rows: Vec<_> = records.iter().map(|(listed, now)| record_row(listed, *now, false)).collect();
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
    // A reader that goes away leaves no decision undone.
    let (trail, mut untouched, mut reported) = (decider.trail(), 0, Ok(()));
    for (key, shown) in &records {
        let outcome = match act::settle(access, &trail, key, *shown, decision).await {
            Ok(()) => decision.word(),
            Err(error)
                if matches!(chosen, Chosen::Many(_))
                    && matches!(error.kind(), Kind::Refused | Kind::Absent) =>
            {
                untouched += 1;
                "changed meanwhile"
            }
            Err(error) => return Err(error.into()),
        };
        if output.is_json() && reported.is_ok() {
            reported = report(key, "outcome", outcome, output);
        }
    }
    reported?;
    match chosen {
        _ if output.is_json() => {}
        Chosen::One(key, ..) => output.line(format!("{} is {means}", called(key)))?,
        Chosen::Many(_) => output.line(format!(
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
    act::check_scope(key.scope())?;
    evidence::is_findable(access).await?;
    act::check_free(access, &key).await?;
    record.word.check(evidence::of_scope(access, key.scope()).await?, access).await?;
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use idem_core::listing::{Cursor, List, Page};
    use idem_core::protocol::{Answer as Answered, Claim, ClaimAnswer, Complete, OnCrash, Owner, Request};
    use idem_core::protocol::{StoredResult, Verdict};
    use idem_core::{Fence, Store, StoreError, listing};
    use idem_runtime::MemoryStore;
    use idem_wrappers::{KeyRing, StoreExt as _};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[derive(Parser)]
    struct Chooses {
        #[command(flatten)]
        choice: Choice,
    }

    #[derive(Parser)]
    struct Says {
        #[command(flatten)]
        word: Word,
    }

    fn key(text: &str) -> RecordKey {
        listing::name("shop.charge", text).unwrap()
    }

    async fn claimed<S: Store>(store: &S, key: &RecordKey) -> (Owner, Fence) {
        let claim = Claim::new(Owner::random(), MINUTE, MINUTE).with_on_crash(OnCrash::InDoubt);
        let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await.unwrap() else {
            panic!("not granted")
        };
        (claim.owner, grant.fence)
    }

    /// A store whose walks have a second page, an hour after the first.
    #[derive(Clone)]
    struct Slow(MemoryStore);

    impl Store for Slow {
        async fn apply(&self, key: &RecordKey, request: Request) -> Result<Answered, StoreError> {
            self.0.apply(key, request).await
        }

        async fn get(&self, key: &RecordKey) -> Result<Option<StoredRecord>, StoreError> {
            self.0.get(key).await
        }

        async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
            self.0.forget(key).await
        }

        async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
            self.0.purge(limit).await
        }

        async fn list(&self, request: &List) -> Result<Page, StoreError> {
            let mut page = self.0.list(request).await?;
            match request.after {
                None => page.next = Some(Cursor::from_bytes(Vec::new())),
                Some(_) => page = Page::new(page.now.after(60 * MINUTE)),
            }
            Ok(page)
        }
    }

    #[tokio::test]
    async fn a_lease_is_judged_by_the_time_when_its_record_was_read() {
        let store = Slow(MemoryStore::new());
        claimed(&store, &key("order-1")).await;
        let line = Chooses::try_parse_from(["idem", "--all", "--scope", "shop.charge"]).unwrap();
        let chosen = line.choice.choose(&Decision::Release, &Access::new(store)).await;
        assert!(chosen.is_ok_and(|chosen| chosen.records().is_empty()));
    }

    #[tokio::test]
    async fn a_record_that_has_gone_does_not_spare_its_operation_the_check() {
        let store = MemoryStore::new();
        let sealed = store.clone().encrypted(KeyRing::new(1, &[7; 32]));
        let (owner, fence) = claimed(&sealed, &key("done")).await;
        let result = StoredResult::Value("1".into());
        let done = Complete::new(owner, fence, Verdict::Completed, result, MINUTE);
        sealed.complete(&key("done"), &done).await.unwrap();
        let (owner, fence) = claimed(&store, &key("there")).await;
        let record = StoredRecord::new(State::InDoubt, owner, fence);
        let listed = |name| (Listed::new(key(name), record.clone()), Timestamp::default());
        let says = Says::try_parse_from(["idem", "--completed", "1", "--unencrypted"]).unwrap();
        let chosen = Chosen::Many(vec![listed("gone"), listed("there")]);
        let checked = chosen.check(&says.word, &Access::new(store)).await;
        assert!(matches!(checked, Err(Trouble::Said(End::Unusable, _))));
    }
}
