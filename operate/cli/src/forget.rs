//! `idem forget`.

use clap::Args;
use idem_core::protocol::{Resolution, Seen, State};
use idem_core::{RecordKey, Store as _, StoreErrorKind};

use super::access::Access;
use super::audit::Trail;
use super::bulk::{self, Bulk};
use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::evidence;
use super::output::{Output, name_json};
use super::settle::{changed, forget_unreadable, settle};
use super::target::{Target, called};

#[derive(Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    bulk: Bulk,
    #[command(flatten)]
    trail: Trail,
    #[command(flatten)]
    confirm: Confirm,
}

/// The record of a key: `Some(None)` where it cannot be read. Such a record can still be forgotten.
async fn see(access: &Access, key: &RecordKey) -> Answer<Option<Option<Seen>>> {
    match access.store.get(key).await {
        Ok(record) => Ok(record.map(|record| Some(Seen::of(&record)))),
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => Ok(Some(None)),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn run(forget: &Forget, access: &Access, output: &mut Output) -> Answer {
    if forget.bulk.is_meant(&forget.target)? {
        return all(forget, access, output).await;
    }
    let key = forget.target.find(access).await?;
    let Some(seen) = see(access, &key).await? else {
        return Err(evidence::absent(access, Some(key.scope().clone())).await);
    };
    let (word, more) = match seen.map(|record| record.state) {
        Some(State::InFlight) => {
            ("in_flight", " Its worker may be running: it will lose its claim and its result.")
        }
        Some(state) => (state.as_str(), ""),
        None => ("unreadable", ""),
    };
    let name = called(&key);
    let question = format!("This deletes {name}, which is {word}: the next call runs the body.{more}");
    if forget.bulk.is_dry_run() {
        output.line(format!("{question} Nothing was done: this is a dry run."))?;
        return Ok(End::Done);
    }
    forget.confirm.ask(&question)?;
    // The answer may have taken minutes, so this compares again, and the store does too.
    match see(access, &key).await? {
        None => return Err(Trouble::new(End::Nothing, "there is no such record any more; nothing was done")),
        Some(now) if now != seen => return Err(changed(now.map(|record| record.state))),
        Some(_) => {}
    }
    match seen {
        Some(seen) => settle(access, &forget.trail, &key, seen, Resolution::ForgetSeen(seen)).await?,
        None => forget_unreadable(access, &forget.trail, &key).await?,
    }
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["forgotten"] = true.into();
        output.line(done.to_string())?;
    } else {
        output.line(format!("{name} is forgotten"))?;
    }
    Ok(End::Done)
}

async fn all(forget: &Forget, access: &Access, output: &mut Output) -> Answer {
    let scope = forget.target.scope()?;
    if scope.is_none() && forget.bulk.is_unlimited() {
        let text = "this would delete every record: give `--scope`, `--state`, `--older` or `--lapsed`";
        return Err(Trouble::new(End::Usage, text));
    }
    let chosen = forget.bulk.chosen(access, Vec::new(), scope).await?;
    let question =
        format!("This deletes {} records: the next calls with their keys run the body.", chosen.0.len());
    let (trail, confirm) = (&forget.trail, &forget.confirm);
    bulk::settle_all(
        &forget.bulk,
        &chosen,
        &question,
        Resolution::ForgetSeen,
        (access, trail, confirm),
        output,
    )
    .await
}
