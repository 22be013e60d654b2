//! `idem forget`.

use clap::Args;
use idem::protocol::State;
use idem::{DynStore, Store as _, StoreErrorKind};

use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::output::{self, Output, name_json};
use super::target::{Target, called};

#[derive(Args)]
pub(crate) struct Forget {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    confirm: Confirm,
}

pub(crate) async fn run(forget: &Forget, store: &DynStore, output: &mut Output) -> Answer {
    let key = forget.target.find(store).await?;
    let absent = || Trouble::new(End::Nothing, "there is no such record");
    let state = match store.get(&key).await {
        Ok(record) => Some(record.ok_or_else(absent)?.state),
        // What cannot be read can be forgotten.
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => None,
        Err(error) => return Err(error.into()),
    };
    let (word, more) = match state {
        Some(State::InFlight) => {
            ("in_flight", " Its worker may be running: it will lose its claim, and its result.")
        }
        Some(state) => (output::state_word(state), ""),
        None => ("unreadable", ""),
    };
    let name = called(&key);
    forget
        .confirm
        .ask(&format!("This deletes {name}, which is {word}: the next call runs the body.{more}"))?;
    if !store.forget(&key).await? && state.is_some() {
        return Err(absent());
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
