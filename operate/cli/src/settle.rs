//! Carries out a person's decision about one record, if the record is still as it was shown.
//!
//! Owns the path from a decision to the store, with its entry in the audit trail. The command and the console share it.

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

pub(crate) const fn forgets(resolution: &Resolution) -> bool {
    matches!(resolution, Resolution::ForgetSeen(_))
}

/// The word for a decision in the audit trail.
pub(crate) fn word(resolution: &Resolution) -> &'static str {
    use idem_core::protocol::Verdict;
    match (resolution.recorded(), forgets(resolution)) {
        (Some((Verdict::Completed, _)), _) => "completed",
        (Some((Verdict::Failed, _)), _) => "failed",
        (None, true) => "forgotten",
        (None, false) => "released",
    }
}

/// Deletes an unreadable record. There is no state to compare.
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

/// The error for a record that is no longer as it was shown.
pub(crate) fn changed(now: Option<State>) -> Trouble {
    let now = now.map_or("unreadable", State::as_str);
    Trouble::new(End::Refused, format!("it has changed meanwhile and is now {now}; nothing was done"))
}

pub(crate) fn refused(state: State) -> Trouble {
    let more = match state {
        State::InFlight => "; its lease has not expired, or its crash policy is to run again",
        _ => "",
    };
    let text = format!("nothing was done: it is {}, not in doubt{more}", state.as_str());
    Trouble::new(End::Refused, text)
}

/// The state of a key. A key whose lease expired under `in_doubt` falls in doubt only at the next claim, so this claims it as a
/// caller would.
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
        // The record was forgotten or released meanwhile. This claim has no body to run.
        ClaimAnswer::Granted(grant) => {
            let (owner, fence) = (claim.owner, grant.fence);
            let release = Release::new(owner, fence, ReleaseCause::Unused);
            store.release(key, &release).await?;
            Err(absent())
        }
        _ => seen().await,
    }
}
