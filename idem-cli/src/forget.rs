//! `idem forget`.

use clap::Args;
use idem_core::protocol::State;
use idem_core::{RecordKey, Store as _, StoreErrorKind};
use idem_runtime::DynStore;

use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::evidence;
use super::output::{Output, name_json};
use super::target::{Seen, Target, called, changed};

#[derive(Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    confirm: Confirm,
}

/// The record of a key: `Some(None)` where what is there cannot be read, and can be forgotten.
async fn see(store: &DynStore, key: &RecordKey) -> Answer<Option<Option<Seen>>> {
    match store.get(key).await {
        Ok(record) => Ok(record.map(|record| Some(Seen::of(&record)))),
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => Ok(Some(None)),
        Err(error) => Err(error.into()),
    }
}

pub(crate) async fn run(forget: &Forget, store: &DynStore, output: &mut Output) -> Answer {
    let key = forget.target.find(store).await?;
    let Some(seen) = see(store, &key).await? else {
        return Err(evidence::absent(store, Some(key.scope().clone())).await);
    };
    let (word, more) = match seen.map(|record| record.state) {
        Some(State::InFlight) => {
            ("in_flight", " Its worker may be running: it will lose its claim, and its result.")
        }
        Some(state) => (state.as_str(), ""),
        None => ("unreadable", ""),
    };
    let name = called(&key);
    forget
        .confirm
        .ask(&format!("This deletes {name}, which is {word}: the next call runs the body.{more}"))?;
    // A person may have thought for minutes.
    match see(store, &key).await? {
        None => return Err(Trouble::new(End::Nothing, "there is no such record any more; nothing was done")),
        Some(now) if now != seen => return Err(changed(now.map(|record| record.state))),
        Some(_) => {}
    }
    store.forget(&key).await?;
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["forgotten"] = true.into();
        output.line(done.to_string())?;
    } else {
        output.line(format!("{name} is forgotten"))?;
    }
    Ok(End::Done)
}
