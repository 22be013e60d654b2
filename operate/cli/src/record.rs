//! `idem record`: records a result that is known from elsewhere, for a key without a record.

use std::time::Duration;

use clap::Args;
use idem_core::Store as _;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, Record as StoredRecord, Release,
    ReleaseCause, State,
};

use super::access::Access;
use super::audit::{Deed, Trail};
use super::confirm::Confirm;
use super::end::{Answer, End, Trouble};
use super::evidence;
use super::filter::older;
use super::output::{Output, name_json};
use super::settle::word;
use super::target::{Target, called};
use super::word::Word;

/// The lease of the command's own claim.
const LEASE: Duration = Duration::from_secs(30);

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
    trail: Trail,
    #[command(flatten)]
    confirm: Confirm,
}

pub(crate) async fn run(record: &Record, access: &Access, output: &mut Output) -> Answer {
    let resolution = record.word.resolution()?;
    let Some((verdict, result)) = resolution.recorded() else {
        return Err(Trouble::new(End::Usage, "missing result: give `--completed`, `--failed` or `--http`"));
    };
    let (store, key) = (&access.store, record.target.exact(access)?);
    evidence::is_findable(access, &key)?;
    if let Some(there) = store.get(&key).await? {
        return Err(is_there(there.state));
    }
    let nothing = StoredRecord::new(State::Released, Owner::NOBODY, idem_core::Fence::default());
    record.word.check(evidence::form(access, &key, &nothing).await?, access)?;
    record.confirm.ask(&format!("This records {} as {}.", called(&key), record.word.means()))?;
    let deed = Deed {
        action: "recorded",
        scope: key.scope().as_str(),
        digest: key.digest().to_string(),
        seen: None,
    };
    let act = async {
        let owner = Owner::random();
        let claim = Claim::new(owner, LEASE, record.ttl).with_on_crash(OnCrash::InDoubt);
        let grant = match store.claim(&key, &claim).await? {
            ClaimAnswer::Granted(grant) => grant,
            ClaimAnswer::InDoubt => return Err(is_there(State::InDoubt)),
            ClaimAnswer::Replay(_) => return Err(is_there(State::Completed)),
            _ => return Err(is_there(State::InFlight)),
        };
        if grant.attempt != 1 {
            // A call of the service claimed the key meanwhile, and failed.
            store.release(&key, &Release::new(owner, grant.fence, ReleaseCause::Unused)).await?;
            return Err(is_there(State::Released));
        }
        let complete = Complete::new(owner, grant.fence, verdict, result.clone(), record.ttl);
        let recorded = match store.complete(&key, &complete).await {
            Ok(CompleteAnswer::Done) => return Ok(()),
            Ok(_) => Trouble::new(End::Refused, "the key was claimed meanwhile; nothing was done"),
            Err(error) => error.into(),
        };
        // Without this release the key would fall in doubt after a failure such as a result that is too large.
        store.release(&key, &Release::new(owner, grant.fence, ReleaseCause::Unused)).await?;
        Err(recorded)
    };
    record.trail.around(store, &deed, act).await?;
    if output.is_json() {
        let mut done = name_json(&key, false);
        done["state"] = word(&resolution).into();
        output.line(done.to_string())?;
    } else {
        output.line(format!("{} is {}", called(&key), record.word.means()))?;
    }
    Ok(End::Done)
}

fn is_there(state: State) -> Trouble {
    let text = format!("nothing was done: there is a record, and it is {}", state.as_str());
    Trouble::new(End::Refused, text)
}
