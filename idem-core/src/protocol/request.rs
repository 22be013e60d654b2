//! The requests to a record and their answers. There are no rules here.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Verdict,
};

/// Asks for the right to run the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Claim {
    /// The claimant. If the answer is lost, the attempt claims again with the same owner.
    pub owner: Owner,
    /// The fingerprint of the arguments, which must not change under the key; `None` to compare nothing.
    pub fingerprint: Option<Fingerprint>,
    /// How long the claim lasts without a renewal.
    pub lease: Duration,
    /// How long the record is kept after its completion, its release or the end of its lease.
    pub ttl: Duration,
    /// What happens after a run that began and did not end.
    pub on_crash: OnCrash,
    /// How many times the body may be started; `None` for no limit. A grant that starts no body is not
    /// counted.
    pub max_attempts: Option<NonZeroU32>,
    /// Whether the claimant can find out what an unfinished run did, because its operation has a `recover`.
    ///
    /// Under [`OnCrash::InDoubt`], such a claim is also granted if the key is in doubt and no lease is
    /// running; the grant is then recovered. If no attempts are left, such a claim can still take over a run
    /// that did not end, but only to recover: see [`Grant::recover_only`].
    pub recovers: bool,
}

/// The right to run the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Grant {
    /// The fence of this attempt.
    pub fence: Fence,
    /// Which attempt this is; from 1.
    pub attempt: u32,
    /// Whether the grant takes over from a run that began and did not end (a lapsed lease, a dropped caller,
    /// a panic, a timeout, a doubt). If so, the body may have had its effect already.
    pub recovered: bool,
    /// Whether no attempts are left and the claim was granted only to recover. If so, the body must not
    /// start.
    ///
    /// If `recover` finds a result, complete with that result. If `recover` finds that nothing happened,
    /// release as [`ReleaseCause::NothingHappened`] and report that the attempts ran out; the next claim is
    /// `Exhausted`. If `recover` fails, release as [`ReleaseCause::Doubtful`]. If `recover` was not called,
    /// release as [`ReleaseCause::Unused`].
    pub recover_only: bool,
    /// How much of the lease is left; less than requested only if the request was sent again.
    pub lease_left: Duration,
}

/// A recorded result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Replay {
    /// Whether it is a value or a terminal error.
    pub verdict: Verdict,
    /// The result.
    pub result: StoredResult,
    /// The attempt that made it.
    pub attempt: u32,
    /// When it was recorded, by the store's clock.
    pub completed_at: Timestamp,
    /// When it expires, by the store's clock; `None` for never.
    pub expires_at: Option<Timestamp>,
}

/// The answer to a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ClaimAnswer {
    /// The claimant has the key. It runs the body, unless it must [only recover](Grant::recover_only).
    Granted(Grant),
    /// The lease of another owner is running.
    Busy {
        /// The time until the lease ends, if it is not renewed.
        retry_after: Duration,
    },
    /// The last attempt was released, and its retry delay is not over. A late copy of the released claim gets
    /// this answer, too.
    RetryAt {
        /// The time until the key can be claimed.
        retry_after: Duration,
    },
    /// The key has this result.
    Replay(Replay),
    /// The key was claimed with other arguments.
    Mismatch,
    /// The outcome of a run is unknown. An operator, or a claim that recovers, must find out whether the
    /// effect happened.
    InDoubt,
    /// The attempts ran out.
    Exhausted {
        /// How many attempts there were.
        attempts: u32,
    },
}

/// Asks to keep the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Renew {
    /// The owner of the claim.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// How long to keep the claim, from now.
    pub lease: Duration,
}

/// The answer to a [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RenewAnswer {
    /// The lease runs from now.
    Held,
    /// The lease runs from now, and the key is in doubt, because another caller found the lease lapsed. The
    /// body may continue: its result, its steps and its release count as before, until an operator or another
    /// grant decides.
    HeldInDoubt,
    /// The owner does not hold the claim any more.
    Lost,
}

/// Records a step of the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct RecordStep {
    /// The owner of the claim.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// How many steps are recorded before this step, including the steps of earlier runs. The number
    /// distinguishes a repeated request from the next step.
    pub position: u32,
    /// The step.
    pub step: RecordedStep,
}

/// The answer to a [`RecordStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordStepAnswer {
    /// The step is recorded at its position; every later run of the body gets it.
    Recorded,
    /// The owner did not hold the claim any more, or another step is at that position; nothing was recorded.
    Lost,
}

/// Records a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Complete {
    /// The owner of the claim.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// Whether the result is a value or a terminal error.
    pub verdict: Verdict,
    /// The result.
    pub result: StoredResult,
    /// How long the result is kept, from now.
    pub ttl: Duration,
}

/// The answer to a [`Complete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompleteAnswer {
    /// A result of this owner and fence is recorded.
    Done,
    /// The owner did not hold the claim any more; nothing was recorded.
    Lost,
}

/// Why a claim is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseCause {
    /// The body returned an error or a value that is not recorded, so what happened is known.
    Failed,
    /// The body began and did not end (it panicked, was dropped or took too long), so what happened is not
    /// known. Such a release counts as a lapsed lease: the next grant is `recovered`, and under
    /// [`OnCrash::InDoubt`] the key is in doubt.
    Abandoned,
    /// `recover` could not find out what an earlier run did, and no body was started. The key is in doubt
    /// under any policy. The attempt of a recovered grant does not count, unless another claim has put the
    /// key in doubt before this release.
    Doubtful,
    /// The body was not started, so the record becomes as it was before the grant. The attempt does not
    /// count, a first attempt leaves no fingerprint, and a key that was in doubt or had a lapsed lease
    /// returns to that state.
    Unused,
    /// The body was not started, and the earlier run is now known to have done nothing. As
    /// [`Unused`](Self::Unused), but the key is no longer in doubt and has no lapsed lease.
    NothingHappened,
}

/// Releases a claim without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Release {
    /// The owner of the claim.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// Why the claim is released.
    pub cause: ReleaseCause,
    /// The time from now until the key can be claimed again. It counts only if the cause is
    /// [`Failed`](ReleaseCause::Failed), or [`Abandoned`](ReleaseCause::Abandoned) under [`OnCrash::Rerun`].
    pub retry_after: Duration,
}

/// The answer to a [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseAnswer {
    /// The claim is released. The key can be claimed again, unless it is in doubt because an unused grant
    /// returned it to that state.
    Released,
    /// The key is in doubt. The claim was released as doubtful, as abandoned under [`OnCrash::InDoubt`], or
    /// as abandoned when the key was in doubt already.
    InDoubt,
    /// The owner did not hold the claim any more; nothing changed.
    Lost,
}

/// What an operator saw of a record. A decision can require that this has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Seen {
    /// Its state.
    pub state: State,
    /// Its fence.
    pub fence: Fence,
    /// Its attempt.
    pub attempt: u32,
}

impl Seen {
    /// The values of this record.
    #[must_use]
    pub const fn of(record: &Record) -> Self {
        Self { state: record.state, fence: record.fence, attempt: record.attempt }
    }
}

/// An operator's decision on a key in doubt; only [`ForgetSeen`](Self::ForgetSeen) is for a key in any state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Resolution {
    /// The effect happened, or failed for good; this is its result.
    Record(Verdict, StoredResult),
    /// The effect did not happen: the next caller may run the body.
    Release,
    /// As [`Record`](Self::Record), if the store finds the record as the operator saw it.
    RecordSeen(Seen, Verdict, StoredResult),
    /// As [`Release`](Self::Release), if the store finds the record as the operator saw it.
    ReleaseSeen(Seen),
    /// The record expires now, in any state, if the store finds it as the operator saw it. The record then
    /// counts as absent, and the next caller runs the body. The store deletes the record's result, steps and
    /// fingerprint at once, and the record's name with the next purge.
    ForgetSeen(Seen),
}

impl Resolution {
    /// The same decision, on the condition that the record is as the operator saw it.
    #[must_use]
    pub fn if_seen(self, seen: Seen) -> Self {
        match self {
            Self::Record(verdict, result) | Self::RecordSeen(_, verdict, result) => {
                Self::RecordSeen(seen, verdict, result)
            }
            Self::Release | Self::ReleaseSeen(_) => Self::ReleaseSeen(seen),
            Self::ForgetSeen(_) => Self::ForgetSeen(seen),
        }
    }

    /// What the operator saw of the record, if the decision depends on it.
    #[must_use]
    pub const fn seen(&self) -> Option<Seen> {
        match self {
            Self::Record(..) | Self::Release => None,
            Self::RecordSeen(seen, ..) | Self::ReleaseSeen(seen) | Self::ForgetSeen(seen) => Some(*seen),
        }
    }

    /// The result that the decision records, if it records one.
    #[must_use]
    pub const fn recorded(&self) -> Option<(Verdict, &StoredResult)> {
        match self {
            Self::Record(verdict, result) | Self::RecordSeen(_, verdict, result) => Some((*verdict, result)),
            Self::Release | Self::ReleaseSeen(_) | Self::ForgetSeen(_) => None,
        }
    }

    /// The same decision. If it records a result, `result` replaces that result.
    #[must_use]
    pub fn with_result(self, result: StoredResult) -> Self {
        match self {
            Self::Record(verdict, _) => Self::Record(verdict, result),
            Self::RecordSeen(seen, verdict, _) => Self::RecordSeen(seen, verdict, result),
            other => other,
        }
    }
}

/// The answer to a [`Resolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ResolveAnswer {
    /// The decision is applied.
    Resolved,
    /// The key is not in doubt but in this state; nothing changed.
    NotInDoubt(State),
    /// The record is no longer as the operator saw it. It is in this state; the decision changed nothing.
    Changed(State),
    /// There is no such record.
    Absent,
}
