//! What a person decides about one record, carried out on the record as it was shown.
//!
//! Owns the way from a decision to the store, with its entry in the trail. The command and the console share it.

use std::time::Duration;

use idem_core::protocol::{
    Claim, ClaimAnswer, OnCrash, Owner, Release, ReleaseCause, Resolution, ResolveAnswer, Seen, State,
};
use idem_core::{RecordKey, Store as _};
use idem_runtime::DynStore;

use super::access::Access;
use super::audit::{Deed, Trail};
use super::end::{Answer, End, Trouble};
use super::output;
use super::walk;

/// Records the decision, if the record is still as it was seen.
pub(crate) async fn settle(
    access: &Access,
    trail: &Trail,
    key: &RecordKey,
    seen: Seen,
    resolution: Resolution,
) -> Answer<()> {
    let resolution = resolution.if_seen(seen);
    let deed = Deed {
        action: word(&resolution),
        scope: key.scope().as_str(),
        digest: key.digest().to_string(),
        seen: Some(seen),
    };
    let act = async {
        match access.store.resolve(key, &resolution).await? {
            ResolveAnswer::Resolved => Ok(()),
            ResolveAnswer::NotInDoubt(state) => Err(refused(state)),
            ResolveAnswer::Changed(state) if state == State::InDoubt || forgets(&resolution) => {
                Err(changed(Some(state)))
            }
            ResolveAnswer::Changed(state) => Err(refused(state)),
            _ if forgets(&resolution) => {
                Err(Trouble::new(End::Nothing, "there is no such record any more; nothing was done"))
            }
            _ => Err(absent()),
        }
    };
    trail.around(&access.store, &deed, act).await
}

const fn forgets(resolution: &Resolution) -> bool {
    matches!(resolution, Resolution::ForgetSeen(_))
}

/// What the trail calls it.
pub(crate) fn word(resolution: &Resolution) -> &'static str {
    use idem_core::protocol::Verdict;
    match (resolution.recorded(), forgets(resolution)) {
        (Some((Verdict::Completed, _)), _) => "completed",
        (Some((Verdict::Failed, _)), _) => "failed",
        (None, true) => "forgotten",
        (None, false) => "released",
    }
}

/// Deletes what cannot be read, in whatever state it is: there is nothing to compare.
pub(crate) async fn forget_unreadable(access: &Access, trail: &Trail, key: &RecordKey) -> Answer<()> {
    let deed = Deed {
        action: "forgotten",
        scope: key.scope().as_str(),
        digest: key.digest().to_string(),
        seen: None,
    };
    trail.around(&access.store, &deed, async { Ok(access.store.forget(key).await.map(drop)?) }).await
}

pub(crate) fn absent() -> Trouble {
    Trouble::new(End::Nothing, "there is no such record")
}

/// The record is not what was shown any more.
pub(crate) fn changed(now: Option<State>) -> Trouble {
    let now = now.map_or("unreadable", State::as_str);
    Trouble::new(End::Refused, format!("it has changed meanwhile and is now {now}; nothing was done"))
}

pub(crate) fn refused(state: State) -> Trouble {
    let more = match state {
        State::InFlight => "; its lease runs, or its crash policy is to run again",
        _ => "",
    };
    let text = format!("nothing was done: it is {}, not in doubt{more}", state.as_str());
    Trouble::new(End::Refused, text)
}

/// The state of a key. A lease that ran out under the policy is only in doubt once somebody has asked: so ask, as a caller
/// would.
pub(crate) async fn put_in_doubt(store: &DynStore, key: &RecordKey) -> Answer<Seen> {
    let seen = async || Answer::Ok(Seen::of(&store.get(key).await?.ok_or_else(absent)?));
    let record = store.get(key).await?.ok_or_else(absent)?;
    let now = walk::now(store).await?;
    if !output::is_lapsed(&record, now) || record.on_crash != OnCrash::InDoubt {
        return Ok(Seen::of(&record));
    }
    let claim =
        Claim::new(Owner::random(), Duration::from_secs(30), record.ttl).with_on_crash(OnCrash::InDoubt);
    match store.claim(key, &claim).await? {
        // It was forgotten or resolved meanwhile, and nobody here runs a body.
        ClaimAnswer::Granted(grant) => {
            let (owner, fence) = (claim.owner, grant.fence);
            let release = Release::new(owner, fence, ReleaseCause::Unused);
            store.release(key, &release).await?;
            Err(absent())
        }
        _ => seen().await,
    }
}
