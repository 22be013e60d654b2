//! The rules: one record a key, and one pure function a transition.
//!
//! This module owns what may happen to a record. It must not know a clock, a store, a runtime or
//! any I/O: time is an argument, and a transition is a value that somebody else writes down.
//! [`MemoryStore`](crate::MemoryStore) and `SqliteStore` run these functions inside their lock or
//! transaction; a store that must restate them in its server's language is held against them by
//! the tests.
//!
//! Every transition is **one atomic step** of the store, judged by the **store's** clock.
//!
//! | operation | when | then | answer |
//! |---|---|---|---|
//! | [`claim`] | a live record has another fingerprint | | `Mismatch` |
//! | | in flight, and the owner is the claimant (its answer was lost) | | `Granted`, same fence |
//! | | absent, or released and due | in flight, new fence, attempt + 1 | `Granted` |
//! | | in flight, lease over, rerun, attempts left | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | in flight, lease over, in doubt | in doubt | `InDoubt` |
//! | | in doubt, or about to be, and the claimant, in doubt itself by policy, settles doubts, attempts left | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | in doubt | | `InDoubt` |
//! | | in flight and lease over, or released; no attempts left | failed | `Exhausted` |
//! | | in flight, lease running | | `Busy` |
//! | | released, not due | | `RetryAt` |
//! | | completed or failed | | `Replay` |
//! | [`renew`] | in flight and mine | lease = now + lease | `Held` |
//! | [`record_step`] | in flight and mine, even if the lease is over; the next position | the step is recorded | `Recorded` |
//! | | this very step is at that position (my answer was lost) | | `Recorded` |
//! | [`complete`] | in flight and mine, even if the lease is over | completed or failed | `Done` |
//! | | already completed by me (my answer was lost) | | `Done` |
//! | [`release`] | in flight and mine | released; in doubt if doubtful, or abandoned under that policy | `Released`, `InDoubt` |
//! | | in flight and mine, and the body was not started | as before the grant | `Released` |
//! | | already released by me (my answer was lost) | | the same again |
//! | `renew`, `record_step`, `complete`, `release` | anything else | | `Lost` |
//! | [`resolve`] | in doubt | completed, failed or released | `Resolved` |
//!
//! Two choices the table leaves open are made here, both for safety. A record remembers the crash
//! policy it was claimed under, and a lapsed lease is *in doubt* if either that policy or the
//! claimant's says so. A fingerprint is *another* only where both sides have one; a claim without
//! one keeps the one recorded.

mod record;
mod request;
mod transition;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod rows;

pub use record::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
    Verdict,
};
pub use request::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Replay, Resolution, ResolveAnswer,
};
#[cfg(any(feature = "redis", feature = "postgres"))]
pub(crate) use transition::may_settle;
pub use transition::{Step, claim, complete, is_live, record_step, release, renew, resolve};
