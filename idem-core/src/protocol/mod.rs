//! The rules: one record a key, and one pure function a transition.
//!
//! This module owns what may happen to a record. It must not know a clock, a store, a runtime or
//! any I/O: time is an argument, and a transition is a value that somebody else writes down.
//! `MemoryStore` and `SqliteStore` run these functions inside their lock or
//! transaction; a store that must restate them in its server's language is held against them by
//! the tests.
//!
//! Every transition is **one atomic operation** of the store, judged by the **store's** clock.
//!
//! | operation | when | then | answer |
//! |---|---|---|---|
//! | [`claim`] | a live record has another fingerprint | | `Mismatch` |
//! | | in flight, and the owner is the claimant (its answer was lost) | | `Granted`, same fence |
//! | | released, and the owner is the claimant (a late copy of an answered claim) | | `RetryAt` |
//! | | absent, or released and due | in flight, new fence, attempt + 1 | `Granted` |
//! | | lapsed, rerun, attempts left | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | lapsed, in doubt by policy | in doubt | `InDoubt` |
//! | | in doubt, or about to be, and the claimant, in doubt itself by policy, recovers | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | as the last three, the claimant recovers, no attempts left | in flight, new fence, the attempt after the limit | `Granted`, to recover only |
//! | | in doubt | | `InDoubt` |
//! | | lapsed, or released; no attempts left | failed, steps kept | `Exhausted` |
//! | | in flight, or in doubt and the claimant settles doubts; lease running | | `Busy` |
//! | | released, not due | | `RetryAt` |
//! | | completed or failed | | `Replay` |
//! | [`renew`] | in flight and mine | lease = now + lease | `Held` |
//! | | in doubt and mine | lease = now + lease | `HeldInDoubt` |
//! | [`record_step`] | in flight or in doubt, and mine, even if the lease is over; the next position | the step is recorded | `Recorded` |
//! | | this very step is at that position (my answer was lost) | | `Recorded` |
//! | [`complete`] | in flight or in doubt, and mine, even if the lease is over | completed or failed | `Done` |
//! | | already completed by me (my answer was lost) | | `Done` |
//! | [`release`] | in flight or in doubt, and mine; the body failed | released | `Released` |
//! | | .. the body began and did not end, rerun | released, the next grant is recovered | `Released` |
//! | | .. the same under in doubt; or doubtful | in doubt | `InDoubt` |
//! | | .. the body was not started | as before the grant | `Released` |
//! | | .. the same, and an earlier run did nothing | released | `Released` |
//! | | already released by me (my answer was lost) | | the same again |
//! | `renew`, `record_step`, `complete`, `release` | anything else | | `Lost` |
//! | [`resolve`] | not as the operator saw it | | `Changed` |
//! | | in doubt | completed, failed or released | `Resolved` |
//! | | any state, and the operator forgets what was seen | ended: absent from now on | `Resolved` |
//!
//! *Lapsed* is what began and did not end: in flight with a lease that is over, or released by a holder who said so.
//!
//! After no transition does a record in doubt, or in flight under that policy, have an end: see [`is_endless`].
//!
//! Attempts count bodies. A grant past the limit starts none ([`Grant::recover_only`]), and neither does one that is
//! given back unused, or recovered and doubtful. An exhausted key has no owner: a result that its last worker
//! brings later is `Lost`, because other callers have got `Exhausted` by then.
//!
//! Two choices the table leaves open are made here, both for safety. A record remembers the crash
//! policy it was claimed under, and a lapsed lease is *in doubt* if either that policy or the
//! claimant's says so. A fingerprint is *another* only where both sides have one; a claim without
//! one keeps the one recorded.

mod apply;
mod build;
mod format;
mod record;
mod request;
mod resolve;
mod transition;
mod words;

#[cfg(test)]
mod rows;

pub use apply::{Answer, Apply, Request, apply};
pub use format::ResultFormat;
pub use record::{
    Fence, Fingerprint, OnCrash, Owner, Record, RecordedStep, State, StoredResult, Timestamp, Tombstone,
    Verdict,
};
pub use request::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Replay, Resolution, ResolveAnswer, Seen,
};
pub use resolve::resolve;
pub use transition::{
    Transition, claim, complete, granted, is_endless, is_live, may_settle, record_step, release, renew,
};
