//! The rules of the protocol: one record for each key, and one pure function for each transition.
//!
//! This module owns what may happen to a record. It must not know a clock, a store, a runtime or any I/O:
//! time is an argument, and a transition is a value that the store then writes. `MemoryStore`, for example,
//! runs these functions inside its lock, and `SqliteStore` inside its transaction. If a store must restate
//! the functions in its server's language, tests compare both versions.
//!
//! Every transition is **one atomic operation** of the store, judged by the **store's** clock. (Stores on
//! servers without a usable clock use the clocks of their callers: see [`Store`](crate::Store).)
//!
//! In the table, *lapsed* means that the body began and did not end: the record is in flight with a lease
//! that is over, or it was released after an abandoned run and is due. A claimant *recovers* if its operation
//! has a `recover`. A claimant *settles* if it recovers and has the in-doubt policy. *Mine* means that the
//! record has the owner and the fence of the request. A fingerprint is *another* only if both the record and
//! the claim have a fingerprint.
//!
//! | operation | when | then | answer |
//! |---|---|---|---|
//! | [`claim`] | a live record has another fingerprint | | `Mismatch` |
//! | | in flight, and the owner is the claimant (its answer was lost) | | `Granted`, same fence |
//! | | released, and the owner is the claimant (a late copy of an answered claim) | | `RetryAt` |
//! | | absent; or released and due, attempts left | in flight, new fence, attempt + 1 | `Granted` |
//! | | lapsed, rerun, attempts left | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | lapsed, in-doubt policy; the claimant does not settle | in doubt | `InDoubt` |
//! | | lapsed, or in doubt with its lease over; attempts left; the claimant settles | in flight, new fence, attempt + 1 | `Granted`, recovered |
//! | | as a row above with `Granted`, recovered, but no attempts left; the claimant recovers | in flight, new fence, the attempt after the limit | `Granted`, to recover only |
//! | | in doubt; the claimant does not settle, or is the owner | | `InDoubt` |
//! | | no attempts left: either released and not as abandoned, or lapsed under rerun and the claimant does not recover | failed, steps kept | `Exhausted` |
//! | | lease running; in flight, or in doubt and the claimant settles | | `Busy` |
//! | | released, not due | | `RetryAt` |
//! | | completed or failed | | `Replay` |
//! | [`renew`] | in flight and mine | lease = now + lease | `Held` |
//! | | in doubt and mine | lease = now + lease | `HeldInDoubt` |
//! | [`record_step`] | in flight or in doubt, and mine, even if the lease is over; the next position | the step is recorded | `Recorded` |
//! | | this very step is at that position (my answer was lost) | | `Recorded` |
//! | [`complete`] | in flight or in doubt, and mine, even if the lease is over | completed or failed | `Done` |
//! | | already completed by me (my answer was lost) | | `Done` |
//! | [`release`] | in flight or in doubt, and mine; the body failed | released | `Released` |
//! | | in flight under rerun, and mine; the body began and did not end | released, the next grant is recovered | `Released` |
//! | | in doubt, or in flight under the in-doubt policy, and mine; the body began and did not end | in doubt | `InDoubt` |
//! | | in flight or in doubt, and mine; released as doubtful | in doubt | `InDoubt` |
//! | | in flight or in doubt, and mine; the body was not started | as before the grant | `Released` |
//! | | in flight or in doubt, and mine; the body was not started, and an earlier run did nothing | released | `Released` |
//! | | already released by me, and still mine (my answer was lost) | | the same again |
//! | `renew`, `record_step`, `complete`, `release` | anything else | | `Lost` |
//! | [`resolve`] | absent | | `Absent` |
//! | | not as the operator saw it | | `Changed` |
//! | | in doubt | completed, failed or released | `Resolved` |
//! | | any state, and the operator forgets what was seen | ended: absent from now on | `Resolved` |
//! | | anything else | | `NotInDoubt` |
//!
//! A record in doubt, or in flight under the in-doubt policy, never expires: see [`is_endless`].
//!
//! The attempt number counts how many times the body was started. These grants start no body and are not
//! counted: a grant past the limit ([`Grant::recover_only`]), a grant that is released because its body was
//! not started, and a recovered grant that is released as doubtful. If a recovered grant is released unused
//! or as doubtful, the record gets a new fence. So if the same release is sent again, its answer is `Lost`.
//! One case differs: another claim has put the key in doubt before the release as doubtful. Then the grant
//! counts, and the fence stays.
//!
//! An exhausted key has no owner. If its last worker brings a result later, the answer is `Lost`, because
//! other callers have got `Exhausted` by then.
//!
//! Two rules are not in the table, both for safety. A record remembers the crash policy of its last grant.
//! The in-doubt policy applies to a lapsed record if that policy, or the policy of the new claim, is the
//! in-doubt policy. A claim without a fingerprint keeps the recorded fingerprint.

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

pub(crate) use build::setters;

pub use apply::{Answer, Request, apply};
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
    Transition, claim, complete, granted, is_endless, is_live, record_step, recorded_answer, release, renew,
};
