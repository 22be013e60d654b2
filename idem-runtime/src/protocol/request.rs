//! What is asked of a record, and what can be answered. No rule lives here.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Fence, Fingerprint, OnCrash, Owner, RecordedStep, State, StoredResult, Timestamp, Verdict};

/// Asks for the right to run the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Who asks; the same when the same attempt asks again.
    pub owner: Owner,
    /// What must not change under the key.
    pub fingerprint: Option<Fingerprint>,
    /// How long a silent owner keeps the claim.
    pub lease: Duration,
    /// How long the record is kept from completion, release or the end of its lease.
    pub ttl: Duration,
    /// What a lease that ran out without a result means.
    pub on_crash: OnCrash,
    /// How often the body may be started; `None` for no limit.
    pub max_attempts: Option<NonZeroU32>,
    /// Whether the asker can find out what happened in a run that is in doubt, so that it is granted
    /// such a key as recovered. It counts under [`OnCrash::InDoubt`] only.
    pub settles_doubt: bool,
}

/// The right to run the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The fence of this attempt.
    pub fence: Fence,
    /// Which attempt this is; from 1.
    pub attempt: u32,
    /// Whether it takes over from a lapsed lease or a doubt, so that the body may have had its effect
    /// already.
    pub recovered: bool,
    /// How much of the lease is left; less than asked for only where the answer was asked again.
    pub lease_left: Duration,
}

/// A recorded result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replay {
    /// Whether it is a value or a terminal error.
    pub verdict: Verdict,
    /// The result.
    pub result: StoredResult,
    /// The attempt that made it.
    pub attempt: u32,
    /// When it was recorded, by the store's clock.
    pub completed_at: Timestamp,
}

/// The answer to a [`Claim`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ClaimAnswer {
    /// Run the body.
    Granted(Grant),
    /// Somebody runs it; this much of the lease is left.
    Busy {
        /// Until the lease ends, if it is not renewed.
        retry_after: Duration,
    },
    /// It failed and is not to be tried again before this.
    RetryAt {
        /// Until it is due.
        retry_after: Duration,
    },
    /// It is done; this is the result.
    Replay(Replay),
    /// The key belongs to other arguments.
    Mismatch,
    /// A worker went away; only an operator can say whether the effect happened.
    InDoubt,
    /// The attempts ran out.
    Exhausted {
        /// How many there were.
        attempts: u32,
    },
}

/// Asks to keep the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// Who asks.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// How long from now.
    pub lease: Duration,
}

/// The answer to a [`Renew`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RenewAnswer {
    /// The lease runs from now.
    Held,
    /// The claim is not the asker's any more.
    Lost,
}

/// Records a step of the body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordStep {
    /// Who asks.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// How many steps are recorded before this one, those of earlier runs included. It is what tells a
    /// step that is asked again from the next one.
    pub position: u32,
    /// The step.
    pub step: RecordedStep,
}

/// The answer to a [`RecordStep`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordStepAnswer {
    /// The step is recorded at its position; every later run of the body is given it.
    Recorded,
    /// The claim was not the asker's any more, or another step is at that position; nothing was
    /// recorded.
    Lost,
}

/// Records a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Complete {
    /// Who asks.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// Whether the result is a value or a terminal error.
    pub verdict: Verdict,
    /// The result.
    pub result: StoredResult,
    /// How long it is kept, from now.
    pub ttl: Duration,
}

/// The answer to a [`Complete`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompleteAnswer {
    /// The result of this owner and fence is the recorded one.
    Done,
    /// The claim was not the asker's any more; nothing was recorded.
    Lost,
}

/// Why a claim is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseCause {
    /// The body returned an error worth retrying: what happened is known.
    Failed,
    /// The body panicked or was dropped: what happened is not known.
    Abandoned,
    /// What happened is not known and could not be found out: the key is in doubt whatever its policy.
    Doubtful,
    /// The body was not started, so the attempt does not count.
    Unused,
}

/// Gives a claim up without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Release {
    /// Who asks.
    pub owner: Owner,
    /// The fence that was granted.
    pub fence: Fence,
    /// Why.
    pub cause: ReleaseCause,
    /// How long from now the key is not to be claimed again.
    pub retry_after: Duration,
}

/// The answer to a [`Release`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReleaseAnswer {
    /// The key may be claimed again.
    Released,
    /// It was abandoned under [`OnCrash::InDoubt`], or doubtful, so it is in doubt.
    InDoubt,
    /// The claim was not the asker's any more; nothing changed.
    Lost,
}

/// An operator's word on a key in doubt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// The effect happened (or happened to fail for good); this is its result.
    Record(Verdict, StoredResult),
    /// The effect did not happen: the next caller may run the body.
    Release,
}

/// The answer to a [`Resolution`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResolveAnswer {
    /// It is as the operator said.
    Resolved,
    /// The key is in this state, not in doubt; nothing changed.
    NotInDoubt(State),
    /// There is no such record.
    Absent,
}
