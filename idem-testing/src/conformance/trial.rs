//! The tools of a check: the store, keys that no other check uses, time, and the operations of the protocol.

use std::fmt::Debug;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::sync::Barrier;

use super::history::History;
use super::subject::{Clock, Profile, Subject};
use super::witness::Witness;
use idem_core::Store;
use idem_core::StoreError;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fingerprint, Grant, OnCrash, Owner, Record,
    RecordStep, RecordStepAnswer, RecordedStep, Release, ReleaseAnswer, ReleaseCause, Renew, RenewAnswer,
    Replay, Resolution, ResolveAnswer, StoredResult, Verdict,
};
use idem_core::{Key, RecordKey, Scope};

/// What is wrong, as text.
#[derive(Debug)]
pub(super) struct Broken(pub(super) String);

/// The result of a check.
pub(super) type Checked<T = ()> = Result<T, Broken>;

/// Longer than any check runs.
pub(super) const LONG: Duration = Duration::from_secs(60 * 60);
/// Longer than [`LONG`].
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// On a real clock, the time left may be this much less than expected, because the machine may stall.
const TOLERANCE: Duration = Duration::from_secs(30);
/// On a real clock, the kit waits this much longer than necessary.
const SLACK: Duration = Duration::from_millis(15);

pub(super) struct Trial {
    pub(super) store: Witness,
    /// All handles to the same records, including `store`.
    pub(super) handles: Vec<Witness>,
    pub(super) profile: Profile,
    scope: Scope,
}

/// A claim that was granted. It may have been lost since.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) key: RecordKey,
    pub(super) owner: Owner,
    pub(super) grant: Grant,
}

/// A check that fails unless `condition` holds.
pub(super) fn that(condition: bool, otherwise: impl Into<String>) -> Checked {
    if condition { Ok(()) } else { Err(Broken(otherwise.into())) }
}

/// A check that fails unless the value is the expected one.
#[expect(clippy::needless_pass_by_value, reason = "what is compared is at hand as a value almost everywhere")]
pub(super) fn same<T: PartialEq + Debug>(what: &str, got: T, wanted: T) -> Checked {
    if got == wanted { Ok(()) } else { Err(Broken(format!("{what}: wanted {wanted:?}, got {got:?}"))) }
}

pub(super) fn value(bytes: impl Into<Bytes>) -> StoredResult {
    StoredResult::Value(bytes.into())
}

pub(super) fn print_of(byte: u8) -> Fingerprint {
    Fingerprint::from_bytes([byte; 32])
}

/// The answer; an error fails the check.
pub(super) fn answered<A>(answer: Result<A, StoreError>) -> Checked<A> {
    answer.map_err(|error| Broken(format!("the store failed: {error}")))
}

impl Held {
    pub(super) fn completion(&self, result: impl Into<Bytes>) -> Complete {
        let verdict = Verdict::Completed;
        Complete::new(self.owner, self.grant.fence, verdict, value(result), DAY)
    }

    pub(super) fn recording(&self, position: u32, step: &RecordedStep) -> RecordStep {
        RecordStep::new(self.owner, self.grant.fence, position, step.clone())
    }

    pub(super) fn release(&self, cause: ReleaseCause) -> Release {
        Release::new(self.owner, self.grant.fence, cause)
    }

    pub(super) fn renewal(&self, lease: Duration) -> Renew {
        Renew::new(self.owner, self.grant.fence, lease)
    }
}

impl Trial {
    pub(super) fn new(subject: &Subject, history: &Arc<History>) -> Result<Self, Broken> {
        let handles: Vec<_> =
            subject.handles.iter().map(|store| Witness::new(store.clone(), history)).collect();
        let store = handles.first().ok_or_else(|| Broken("the subject has no store".into()))?.clone();
        let name = format!("conformance.{:032x}", rand::random::<u128>());
        let scope = Scope::new(name).map_err(|error| Broken(error.to_string()))?;
        Ok(Self { store, handles, profile: subject.profile, scope })
    }

    /// The key with this text, in a scope that no other check uses.
    pub(super) fn key(&self, text: impl AsRef<str>) -> Checked<RecordKey> {
        self.key_in("", text)
    }

    /// The key with this text, in this trial's scope with the suffix `more`.
    pub(super) fn key_in(&self, more: &str, text: impl AsRef<str>) -> Checked<RecordKey> {
        let wrong = |error| Broken(format!("the kit made a key that cannot be: {error}"));
        let scope = Scope::new(format!("{}{more}", self.scope)).map_err(wrong)?;
        Ok(RecordKey::new(scope, Key::new(text).map_err(wrong)?))
    }

    /// A claim by a new owner, with a lease that outlasts the check.
    #[expect(clippy::unused_self, reason = "reads as the other verbs do")]
    pub(super) fn ask(&self) -> Claim {
        Claim::new(Owner::random(), LONG, DAY)
    }

    /// A claim by a new owner, with a lease that is short enough to wait for its end.
    pub(super) fn ask_short(&self) -> Claim {
        self.ask().with_lease(self.short())
    }

    /// A claim by a new owner, with this `max_attempts`.
    pub(super) fn ask_at_most(&self, most: u32) -> Claim {
        self.ask().with_max_attempts(NonZeroU32::new(most))
    }

    /// A claim by a new owner under the `in_doubt` policy.
    pub(super) fn ask_in_doubt(&self) -> Claim {
        self.ask().with_on_crash(OnCrash::InDoubt)
    }

    /// A claim by a new owner, under the `in_doubt` policy and with a `recover` function. Such a claim can be
    /// granted even if the key is in doubt.
    pub(super) fn ask_settling(&self) -> Claim {
        self.ask_in_doubt().with_recovers(true)
    }

    /// A time short enough to wait for.
    pub(super) const fn short(&self) -> Duration {
        self.profile.short
    }

    /// Whether the kit controls the time, to the microsecond.
    pub(super) fn is_exact(&self) -> bool {
        self.profile.clock == Clock::Tokio
    }

    /// Lets this much time pass; on a real clock a little more.
    pub(super) async fn pass(&self, time: Duration) {
        if self.is_exact() {
            tokio::time::advance(time).await;
        } else {
            tokio::time::sleep(time + SLACK).await;
        }
        self.store.note(&format!("{time:?} pass"));
    }

    /// Checks the time left in an answer: exactly, or roughly on a real clock.
    pub(super) fn left(&self, what: &str, got: Duration, wanted: Duration) -> Checked {
        let close = got <= wanted && got + TOLERANCE >= wanted;
        let right = if self.is_exact() { got == wanted } else { close };
        that(right, format!("{what}: {wanted:?} should be left, and it says {got:?}"))
    }

    pub(super) async fn claim(&self, key: &RecordKey, request: &Claim) -> Checked<ClaimAnswer> {
        answered(self.store.claim(key, request).await)
    }

    /// A claim that must be granted.
    pub(super) async fn grant(&self, key: &RecordKey, request: &Claim) -> Checked<Held> {
        match self.claim(key, request).await? {
            ClaimAnswer::Granted(grant) => Ok(Held { key: key.clone(), owner: request.owner, grant }),
            other => Err(Broken(format!("the claim should be granted, and the answer is {other:?}"))),
        }
    }

    /// A claim by a new owner that must be granted.
    pub(super) async fn take(&self, key: &RecordKey) -> Checked<Held> {
        self.grant(key, &self.ask()).await
    }

    /// A claim that must get the recorded result.
    pub(super) async fn replay(&self, key: &RecordKey) -> Checked<Replay> {
        match self.claim(key, &self.ask()).await? {
            ClaimAnswer::Replay(replay) => Ok(replay),
            other => Err(Broken(format!("the result should be replayed, and the answer is {other:?}"))),
        }
    }

    /// A claim by another owner that must get `Busy`. Returns what is left of the lease.
    pub(super) async fn busy(&self, key: &RecordKey) -> Checked<Duration> {
        match self.claim(key, &self.ask()).await? {
            ClaimAnswer::Busy { retry_after } => Ok(retry_after),
            other => Err(Broken(format!("the key should be busy, and the answer is {other:?}"))),
        }
    }

    pub(super) async fn renew(&self, held: &Held, lease: Duration) -> Checked<RenewAnswer> {
        answered(self.store.renew(&held.key, &held.renewal(lease)).await)
    }

    pub(super) async fn record_step(
        &self,
        held: &Held,
        position: u32,
        step: &RecordedStep,
    ) -> Checked<RecordStepAnswer> {
        answered(self.store.record_step(&held.key, &held.recording(position, step)).await)
    }

    pub(super) async fn complete(&self, held: &Held, result: &'static [u8]) -> Checked<CompleteAnswer> {
        self.complete_with(&held.key, &held.completion(result)).await
    }

    pub(super) async fn complete_with(&self, key: &RecordKey, request: &Complete) -> Checked<CompleteAnswer> {
        answered(self.store.complete(key, request).await)
    }

    pub(super) async fn release(&self, held: &Held, cause: ReleaseCause) -> Checked<ReleaseAnswer> {
        self.release_with(&held.key, &held.release(cause)).await
    }

    pub(super) async fn release_with(&self, key: &RecordKey, request: &Release) -> Checked<ReleaseAnswer> {
        answered(self.store.release(key, request).await)
    }

    pub(super) async fn resolve(&self, key: &RecordKey, word: &Resolution) -> Checked<ResolveAnswer> {
        answered(self.store.resolve(key, word).await)
    }

    pub(super) async fn forget(&self, key: &RecordKey) -> Checked<bool> {
        answered(self.store.forget(key).await)
    }

    pub(super) async fn get(&self, key: &RecordKey) -> Checked<Option<Record>> {
        let record = answered(self.store.get(key).await)?;
        let endless =
            record.as_ref().is_none_or(|record| protocol::is_endless(record) == record.expires_at.is_none());
        that(
            endless,
            format!("in doubt or in flight under that policy, and no other, it has no end: {record:?}"),
        )?;
        Ok(record)
    }

    /// The record. The check fails if there is none.
    pub(super) async fn record(&self, key: &RecordKey) -> Checked<Record> {
        self.get(key).await?.ok_or_else(|| Broken("there should be a record, and there is none".into()))
    }

    pub(super) async fn purge(&self, limit: usize) -> Checked<usize> {
        answered(self.store.purge(limit).await)
    }

    /// Checks that an operation leaves the record unchanged.
    pub(super) async fn unchanged(&self, key: &RecordKey, before: &Option<Record>) -> Checked {
        same("the record must not change", &self.get(key).await?, before)
    }

    /// Runs `each` in `count` tasks at the same time, spread over all handles.
    pub(super) async fn race<T, F>(&self, count: usize, each: impl Fn(usize, Witness) -> F) -> Checked<Vec<T>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let gate = Arc::new(Barrier::new(count));
        let tasks = (0..count).map(|number| {
            let gate = gate.clone();
            let work = each(number, self.handles[number % self.handles.len()].clone());
            tokio::spawn(async move {
                gate.wait().await;
                work.await
            })
        });
        let ended = join_all(tasks.collect::<Vec<_>>()).await;
        let ended: Result<Vec<_>, _> = ended.into_iter().collect();
        ended.map_err(|error| Broken(format!("a task of the race ended early: {error}")))
    }
}
