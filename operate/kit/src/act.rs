//! Carries out a person's decision about one record, if the record is still as it was shown.
//!
//! Owns the path from a decision to the store, with its entry in the audit trail. The command and the console
//! share this path.

use std::time::Duration;

use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, Record, Release, ReleaseCause, Resolution,
    ResolveAnswer, ResultFormat, Seen, State, StoredResult, Verdict,
};
use idem_core::{RecordKey, Scope, Store as _, StoreErrorKind};

use crate::access::Access;
use crate::audit::{Deed, Trail};
use crate::error::{Error, Kind, Result};
use crate::text::is_lapsed;
use crate::walk::{self, TRAIL};

/// The lease of the claims that this module makes.
const LEASE: Duration = Duration::from_secs(30);

/// A record as a person sees it before a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The record. The flag says whether the record is in flight under `on_crash = "in_doubt"` with an
    /// expired lease. If so, the next claim without a `recover` puts it in doubt.
    Record(Seen, bool),
    /// The record cannot be read. It can only be forgotten.
    Unreadable,
    /// There is no record. A result that is known from elsewhere can be recorded, and is kept for this time.
    Absent(Duration),
}

impl Shown {
    /// What a person sees of this record at this time.
    #[must_use]
    pub fn of(record: &Record, now: idem_core::protocol::Timestamp) -> Self {
        Self::Record(Seen::of(record), is_lapsed(record, now) && record.on_crash == OnCrash::InDoubt)
    }

    /// The state, in a word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Record(seen, _) => seen.state.as_str(),
            Self::Unreadable => "unreadable",
            Self::Absent(_) => "absent",
        }
    }

    /// The version of the record, if there is a record and it can be read.
    #[must_use]
    pub const fn seen(self) -> Option<Seen> {
        match self {
            Self::Record(seen, _) => Some(seen),
            Self::Unreadable | Self::Absent(_) => None,
        }
    }

    /// A warning for the person before a decision ends the claim.
    #[must_use]
    pub fn warning(self) -> Option<&'static str> {
        let is_in_flight = self.seen().is_some_and(|seen| seen.state == State::InFlight);
        is_in_flight.then_some("Its worker may be running: it will lose its claim and its result.")
    }

    /// Whether a person can record a result for the record, or release its claim.
    #[must_use]
    pub fn is_resolvable(self) -> bool {
        matches!(self, Self::Record(seen, is_lapsed) if is_lapsed || seen.state == State::InDoubt)
    }
}

/// The record with this name as it is now. Changes nothing.
///
/// # Errors
///
/// The store fails.
pub async fn look(access: &Access, key: &RecordKey) -> Result<Option<(Shown, Option<Record>)>> {
    match access.store.get(key).await {
        Ok(Some(record)) => {
            let now = walk::now(&access.store).await?;
            Ok(Some((Shown::of(&record, now), Some(record))))
        }
        Ok(None) => Ok(None),
        Err(error) if error.kind() == StoreErrorKind::CorruptRecord => Ok(Some((Shown::Unreadable, None))),
        Err(error) => Err(error.into()),
    }
}

/// A person's decision about a record.
#[derive(Clone)]
pub enum Decision {
    /// This result must be recorded, because the effect happened, or because the call failed for good.
    Record(Verdict, StoredResult),
    /// The claim must be released, because the effect did not happen.
    Release,
    /// The record must be deleted, in any state.
    Forget,
}

impl Decision {
    /// The decision in a word, in output and in the audit trail.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Record(Verdict::Failed, _) => "failed",
            Self::Record(..) => "completed",
            Self::Release => "released",
            Self::Forget => "forgotten",
        }
    }

    /// What the decision means for later calls.
    #[must_use]
    pub fn means(&self) -> &'static str {
        match self {
            Self::Record(Verdict::Failed, _) => "failed: every later call gets this error",
            Self::Record(_, result) if result.format() == Some(ResultFormat::Response) => {
                "completed: every later request gets this response"
            }
            Self::Record(..) => "completed: every later call gets this value",
            Self::Release => "released: the next call runs the body, and its effect may happen again",
            Self::Forget => "forgotten: the next call runs the body, and its effect may happen again",
        }
    }

    /// Whether the decision records a result.
    #[must_use]
    pub const fn records(&self) -> bool {
        matches!(self, Self::Record(..))
    }

    /// Checks that the decision can be carried out on the shown record.
    ///
    /// # Errors
    ///
    /// The record's state does not allow the decision; the error says why.
    pub fn check(&self, shown: Shown) -> Result<()> {
        match shown {
            Shown::Absent(_) if self.records() => Ok(()),
            Shown::Absent(_) => Err(absent()),
            _ if matches!(self, Self::Forget) || shown.is_resolvable() => Ok(()),
            Shown::Record(seen, _) => Err(refused(seen.state)),
            Shown::Unreadable => Err(Error::new(Kind::Unusable, "it cannot be read, and only be forgotten")),
        }
    }

    /// Whether `record` is what this decision leaves in the store. `seen` is the version that the person saw
    /// before the decision.
    fn leaves(&self, seen: Seen, record: Option<&Record>) -> bool {
        let Some(record) = record else { return matches!(self, Self::Forget) };
        let is_of_seen =
            (record.owner, record.fence, record.attempt) == (Owner::NOBODY, seen.fence, seen.attempt);
        is_of_seen
            && match self {
                Self::Record(verdict, result) => record
                    .replay()
                    .is_some_and(|replay| (replay.verdict, &replay.result) == (*verdict, result)),
                Self::Release => record.state == State::Released,
                Self::Forget => false,
            }
    }

    fn resolution(&self, seen: Seen) -> Resolution {
        match self {
            Self::Record(verdict, result) => Resolution::RecordSeen(seen, *verdict, result.clone()),
            Self::Release => Resolution::ReleaseSeen(seen),
            Self::Forget => Resolution::ForgetSeen(seen),
        }
    }
}

/// Carries out the decision, if the record is still as it was shown, or is still absent.
///
/// # Errors
///
/// The record has changed, its state does not allow the decision, or the store or the audit trail fails.
pub async fn settle(
    access: &Access,
    trail: &Trail,
    key: &RecordKey,
    shown: Shown,
    decision: &Decision,
) -> Result<()> {
    check_scope(key.scope())?;
    decision.check(shown)?;
    let act = async {
        let seen = match shown {
            Shown::Record(seen, true) if !matches!(decision, Decision::Forget) => {
                put_in_doubt(access, key, seen).await?
            }
            Shown::Record(seen, _) => seen,
            Shown::Unreadable => return forget_unreadable(access, key).await,
            Shown::Absent(ttl) => return record(access, key, decision, ttl).await,
        };
        match access.store.resolve(key, &decision.resolution(seen)).await? {
            ResolveAnswer::Resolved => Ok(()),
            // A store repeats a request whose answer was lost. The repeated request then finds the effect of
            // the first request.
            _ if decision.leaves(seen, access.store.get(key).await?.as_ref()) => Ok(()),
            ResolveAnswer::NotInDoubt(state) => Err(refused(state)),
            ResolveAnswer::Changed(state) => Err(changed(Some(state))),
            _ => Err(Error::new(Kind::Absent, "there is no such record any more; nothing was done")),
        }
    };
    trail.around(&access.store, &Deed::on(key, decision.word(), shown.seen()), act).await
}

/// Refuses a decision about an entry of the audit trail.
///
/// # Errors
///
/// The scope is the scope of the audit trail.
pub fn check_scope(scope: &Scope) -> Result<()> {
    match scope.as_str() {
        TRAIL => Err(Error::new(Kind::Refused, "nothing was done: the audit trail cannot be changed")),
        _ => Ok(()),
    }
}

/// Deletes a record that cannot be read, if it is still unreadable. Such a record has no state that the store
/// could compare.
async fn forget_unreadable(access: &Access, key: &RecordKey) -> Result<()> {
    match look(access, key).await? {
        Some((Shown::Unreadable, _)) => Ok(access.store.forget(key).await.map(drop)?),
        Some((now, _)) => Err(changed(State::from_word(now.word()))),
        None => Err(absent()),
    }
}

/// Puts a key in doubt. The key was shown in flight with an expired lease. If the record is still of the same
/// attempt, this function claims the key, as a caller without a `recover` would. This claim puts the key in
/// doubt.
async fn put_in_doubt(access: &Access, key: &RecordKey, shown: Seen) -> Result<Seen> {
    let store = &access.store;
    let record = store.get(key).await?.ok_or_else(absent)?;
    let is_same = |seen: Seen| (seen.fence, seen.attempt) == (shown.fence, shown.attempt);
    let mut seen = Seen::of(&record);
    if is_same(seen) && seen.state == State::InFlight {
        let claim = Claim::new(Owner::random(), LEASE, record.ttl).with_on_crash(OnCrash::InDoubt);
        if let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await? {
            // The record was forgotten or released in the meantime. This claim has no body to run.
            store.release(key, &Release::new(claim.owner, grant.fence, ReleaseCause::Unused)).await?;
            return Err(changed(Some(State::Released)));
        }
        seen = Seen::of(&store.get(key).await?.ok_or_else(absent)?);
    }
    match is_same(seen) && seen.state == State::InDoubt {
        true => Ok(seen),
        false => Err(changed(Some(seen.state))),
    }
}

/// Records a result for a key without a record.
async fn record(access: &Access, key: &RecordKey, decision: &Decision, ttl: Duration) -> Result<()> {
    let Decision::Record(verdict, result) = decision else { return Err(absent()) };
    let store = &access.store;
    // Checks before the claim, because a claim of a key with an expired lease would put the key in doubt.
    check_free(access, key).await?;
    let owner = Owner::random();
    let claim = Claim::new(owner, LEASE, ttl).with_on_crash(OnCrash::InDoubt);
    let claimed = || Error::new(Kind::Refused, "the key was claimed meanwhile; nothing was done");
    let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await? else {
        // If there is a record, this returns an error that names its state.
        check_free(access, key).await?;
        return Err(claimed());
    };
    let unused = Release::new(owner, grant.fence, ReleaseCause::Unused);
    if grant.attempt != 1 {
        // A call of the service claimed the key in the meantime, and failed.
        store.release(key, &unused).await?;
        check_free(access, key).await?;
        return Err(claimed());
    }
    let complete = Complete::new(owner, grant.fence, *verdict, result.clone(), ttl);
    let recorded = match store.complete(key, &complete).await {
        Ok(CompleteAnswer::Done) => return Ok(()),
        Ok(_) => claimed(),
        Err(error) => error.into(),
    };
    // The result is not recorded, for example because it is too large. Without this release, the key would
    // fall in doubt.
    store.release(key, &unused).await?;
    Err(recorded)
}

/// Refuses a key that has a record. A record does not count if its claims were all released unused.
///
/// # Errors
///
/// There is a record, or the store fails.
pub async fn check_free(access: &Access, key: &RecordKey) -> Result<()> {
    match access.store.get(key).await? {
        Some(record) if record.state != State::Released || record.attempt > 0 => {
            let text = format!("nothing was done: there is a record, and it is {}", record.state.as_str());
            Err(Error::new(Kind::Refused, text))
        }
        _ => Ok(()),
    }
}

/// The error for a name without a record.
#[must_use]
pub fn absent() -> Error {
    Error::new(Kind::Absent, "there is no such record")
}

/// The error for a record that changed after it was shown. With `None`, the record cannot be read now.
#[must_use]
pub fn changed(now: Option<State>) -> Error {
    let now = now.map_or("unreadable", State::as_str);
    Error::new(Kind::Refused, format!("it has changed meanwhile and is now {now}; nothing was done"))
}

/// The error for a record that cannot be resolved in this state.
fn refused(state: State) -> Error {
    let more = match state {
        State::InFlight => "; its lease has not expired, or its crash policy is to run again",
        _ => "",
    };
    Error::new(Kind::Refused, format!("nothing was done: it is {}, not in doubt{more}", state.as_str()))
}
