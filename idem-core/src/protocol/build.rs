//! Constructors and setters of the protocol's types. A constructor takes what the type needs, and a setter
//! changes one field.
//!
//! The types are `#[non_exhaustive]`, so that a new field breaks no code that makes or reads them.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{
    Claim, Complete, Fence, Fingerprint, Grant, OnCrash, Owner, Record, RecordStep, RecordedStep, Release,
    ReleaseCause, Renew, Replay, State, StoredResult, Timestamp, Transition, Verdict,
};

macro_rules! setters {
    ($($ty:ident { $($with:ident $field:ident: $value:ty,)* })*) => {$(
        impl $ty {
            $(
                #[doc = concat!("The same with another `", stringify!($field), "`.")]
                #[must_use]
                pub fn $with(mut self, $field: $value) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    )*};
}

/// Types whose constructor takes all their fields.
macro_rules! made_of {
    ($($ty:ident { $($with:ident $field:ident: $value:ty,)* })*) => {
        $(impl $ty {
            #[doc = concat!("A `", stringify!($ty), "` with these values, in the order of its fields.")]
            #[must_use]
            pub const fn new($($field: $value),*) -> Self {
                Self { $($field),* }
            }
        })*
        setters! { $($ty { $($with $field: $value,)* })* }
    };
}

pub(crate) use setters;

setters! {
    Claim {
        with_owner owner: Owner,
        with_fingerprint fingerprint: Option<Fingerprint>,
        with_lease lease: Duration,
        with_ttl ttl: Duration,
        with_on_crash on_crash: OnCrash,
        with_max_attempts max_attempts: Option<NonZeroU32>,
        with_recovers recovers: bool,
    }
    Grant {
        with_fence fence: Fence,
        with_attempt attempt: u32,
        with_recovered recovered: bool,
        with_recover_only recover_only: bool,
        with_lease_left lease_left: Duration,
    }
    Release {
        with_owner owner: Owner,
        with_fence fence: Fence,
        with_cause cause: ReleaseCause,
        with_retry_after retry_after: Duration,
    }
    Record {
        with_state state: State,
        with_owner owner: Owner,
        with_fence fence: Fence,
        with_attempt attempt: u32,
        with_recovered recovered: bool,
        with_on_crash on_crash: OnCrash,
        with_lease_until lease_until: Timestamp,
        with_retry_at retry_at: Timestamp,
        with_ttl ttl: Duration,
        with_fingerprint fingerprint: Option<Fingerprint>,
        with_result result: Option<StoredResult>,
        with_steps steps: Vec<RecordedStep>,
        with_created_at created_at: Timestamp,
        with_completed_at completed_at: Option<Timestamp>,
        with_expires_at expires_at: Option<Timestamp>,
    }
}

made_of! {
    Replay {
        with_verdict verdict: Verdict,
        with_result result: StoredResult,
        with_attempt attempt: u32,
        with_completed_at completed_at: Timestamp,
        with_expires_at expires_at: Option<Timestamp>,
    }
    Renew {
        with_owner owner: Owner,
        with_fence fence: Fence,
        with_lease lease: Duration,
    }
    RecordStep {
        with_owner owner: Owner,
        with_fence fence: Fence,
        with_position position: u32,
        with_step step: RecordedStep,
    }
    RecordedStep {
        with_name name: String,
        with_input input: Option<Fingerprint>,
        with_result result: StoredResult,
    }
    Complete {
        with_owner owner: Owner,
        with_fence fence: Fence,
        with_verdict verdict: Verdict,
        with_result result: StoredResult,
        with_ttl ttl: Duration,
    }
}

impl Claim {
    /// A claim by this owner, without a fingerprint or a limit of attempts, under [`OnCrash::Rerun`].
    #[must_use]
    pub const fn new(owner: Owner, lease: Duration, ttl: Duration) -> Self {
        Self {
            owner,
            fingerprint: None,
            lease,
            ttl,
            on_crash: OnCrash::Rerun,
            max_attempts: None,
            recovers: false,
        }
    }
}

impl Grant {
    /// A grant with these values. The body may start, because [`recover_only`](Self::recover_only) is
    /// `false`.
    #[must_use]
    pub const fn new(fence: Fence, attempt: u32, recovered: bool, lease_left: Duration) -> Self {
        Self { fence, attempt, recovered, recover_only: false, lease_left }
    }
}

impl Release {
    /// Releases the claim of this owner and fence; the key can be claimed again at once.
    #[must_use]
    pub const fn new(owner: Owner, fence: Fence, cause: ReleaseCause) -> Self {
        Self { owner, fence, cause, retry_after: Duration::ZERO }
    }
}

impl Record {
    /// A record in this state, with attempt 1 and [`OnCrash::Rerun`]. Its lease, retry time and creation time
    /// are at the Unix epoch, and its other fields are empty, `false` or zero. A store that reads a record
    /// sets all these fields.
    #[must_use]
    pub const fn new(state: State, owner: Owner, fence: Fence) -> Self {
        let epoch = Timestamp::from_micros(0);
        Self {
            state,
            owner,
            fence,
            attempt: 1,
            recovered: false,
            on_crash: OnCrash::Rerun,
            lease_until: epoch,
            retry_at: epoch,
            ttl: Duration::ZERO,
            fingerprint: None,
            result: None,
            steps: Vec::new(),
            created_at: epoch,
            completed_at: None,
            expires_at: None,
        }
    }
}

impl<A> Transition<A> {
    /// A transition that writes `write`, if it is `Some`, and answers `answer`.
    #[must_use]
    pub const fn new(write: Option<Record>, answer: A) -> Self {
        Self { write, answer }
    }
}
