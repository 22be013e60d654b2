//! `RedisStore`: Redis and Valkey; one server, a cluster, or a master that sentinels name.
//!
//! Owns the public face. Below it, `builder` makes one and `check` looks at the server, `link` keeps the
//! connection, `name` names a key, `layout` packs a record, `scripts` restate the protocol on the
//! server, and `failure` says what an error means. Answers that change nothing are the protocol's own,
//! made here from the record and the server's time.

mod builder;
mod check;
#[cfg(feature = "redis-cluster")]
mod cluster;
mod failure;
mod lanes;
mod layout;
mod link;
mod listing;
mod name;
mod scripts;
#[cfg(feature = "redis-sentinel")]
mod sentinel;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};

pub use self::builder::RedisStoreBuilder;
use self::lanes::Lanes;
use self::link::Link;
use self::name::Prefix;
use self::scripts::{CLAIM, COMPLETE, RECORD_STEP, RELEASE, RENEW, RESOLVE, Request};
use super::hints::Hints;
use super::own_runtime::apart;
use super::retry::retried;
use super::{Store, Waiters};
use crate::error::StoreError;
use crate::inspection::Inspection;
use crate::key::RecordKey;
use crate::listing::{List, Page};
use crate::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer, State, StoredResult,
    Timestamp,
};

/// Keeps records on a Redis or Valkey server, one packed string a record.
///
/// Each step is one script under one key, so one round trip; the server's clock is the judge. A record's
/// expiry on the server is its retention and never its lease: a record is there until its `expires_at`,
/// up to the server's millisecond, and a key in doubt or in flight under that
/// policy has none.
///
/// What an acknowledged step survives is what the server survives: without a disk (`appendonly`) not a
/// restart, and without [`wait_replicas`](RedisStoreBuilder::wait_replicas) not the loss of its master.
/// `docs/operations.md` in the repository says how to run a server for this. Connecting looks at the
/// server, and says what is not right in events of the target `idem`.
///
/// It holds one connection for each runtime that calls it, and one in a thread of the stores' own for what must
/// not be held up: callers of several runtimes may share a store, and a body that blocks its thread keeps its
/// claim. Operations are asked again until there is an answer or the operation timeout is over;
/// [`forget`](Store::forget) is not asked again once it may have been applied.
///
/// ```no_run
/// # use idem_runtime as idem;
/// # async fn example() -> Result<(), idem::StoreError> {
/// let store = idem::RedisStore::connect("redis://127.0.0.1/").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    link: Link,
    lanes: Arc<Lanes>,
    hints: Hints,
    prefix: Prefix,
    operation_timeout: Duration,
    max_result_bytes: usize,
    replicas: Option<Replicas>,
    waiters: Waiters,
}

/// How many replicas must have a claim and a result, and how long they are waited for.
#[derive(Clone, Copy, Debug)]
struct Replicas {
    count: u32,
    timeout: Duration,
}

impl RedisStore {
    /// Connects to the server at `url`, `redis://[user:password@]host[:port][/db]`, with the settings a
    /// [`builder`](Self::builder) has at first.
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Asks in the stores' own runtime, until there is an answer or the time is over: for what must get
    /// through though the caller's runtime is blocked or gone.
    async fn ask_apart(&self, request: Request) -> Result<Value, StoreError> {
        self.ask_for(self.0.operation_timeout, request).await
    }

    async fn ask_for(&self, time: Duration, request: Request) -> Result<Value, StoreError> {
        let link = self.0.link.clone();
        apart(async move { retried(time, || link.ask(&request)).await }).await
    }

    /// Asks once where the caller is, and if there is no answer apart.
    async fn ask(&self, request: Request) -> Result<Value, StoreError> {
        let Link::Own(own) = &self.0.link else { return self.ask_apart(request).await };
        let begin = Instant::now();
        let error = match self.0.lanes.ask(own, &request.command).await {
            Some(Ok(answer)) => return Ok(answer),
            Some(Err(error)) => Some(failure::asking(error)),
            None => None,
        };
        let left = self.0.operation_timeout.saturating_sub(begin.elapsed());
        let answer = self.ask_for(left, request).await;
        match (answer, error) {
            // What was asked first may have been applied, whatever is said of the later ones.
            (Err(later), Some(first)) if later.is_transient() && first.is_outcome_unknown() => Err(first),
            (answer, _) => answer,
        }
    }

    /// `WAIT` counts from the connection's own last write, so an answer that was asked again on another
    /// connection needs one.
    fn replicate(&self, call: &mut Cmd) {
        if self.0.replicas.is_some() {
            call.arg(1);
        }
    }

    /// As `ask`, and enough replicas have what the answer rests on.
    async fn ask_replicated(&self, key: Vec<u8>, request: Request) -> Result<Value, StoreError> {
        let Some(Replicas { count, timeout }) = self.0.replicas else {
            return self.ask(request).await;
        };
        let (link, time) = (self.0.link.clone(), self.0.operation_timeout);
        let asked =
            apart(async move { retried(time, || link.ask_replicated(&request, &key, count, timeout)).await });
        match asked.await? {
            (answer, have) if have >= count => Ok(answer),
            (_, have) => Err(StoreError::outcome_unknown(format!(
                "{have} of {count} replicas acknowledged it within {timeout:?}"
            ))),
        }
    }

    /// The answer to a claim on a key that has a result: a read, and no script.
    async fn replay(&self, name: &[u8], request: &Claim) -> Result<Option<ClaimAnswer>, StoreError> {
        let mut get = cmd("GET");
        get.arg(name);
        let Value::BulkString(record) = self.ask(Request::plain(get)).await? else { return Ok(None) };
        let record = layout::decode(record)?;
        let is_terminal = matches!(record.state, State::Completed | State::Failed);
        Ok(is_terminal.then(|| answered(Some(&record), 0, request)))
    }

    fn check_size(&self, result: &StoredResult) -> Result<(), StoreError> {
        match result {
            StoredResult::Value(bytes) if bytes.len() > self.0.max_result_bytes => {
                Err(StoreError::too_large(bytes.len(), self.0.max_result_bytes))
            }
            _ => Ok(()),
        }
    }
}

/// A script's answer that is a number.
fn number(answer: &Value) -> Result<i64, StoreError> {
    match answer {
        Value::Int(-1) => Err(layout::damaged()),
        Value::Int(number) => Ok(*number),
        _ => Err(misunderstood()),
    }
}

fn misunderstood() -> StoreError {
    StoreError::outcome_unknown("the answer of the Redis server was not understood")
}

/// The answer to a claim, by the protocol itself, from what the script found and when.
fn claimed(answer: Value, request: &Claim) -> Result<ClaimAnswer, StoreError> {
    let (record, now) = match answer {
        Value::Int(now) => (None, now),
        // Completed, failed or in doubt, and there: no clock changes the answer.
        Value::BulkString(record) => (Some(layout::decode(record)?), 0),
        Value::Array(found) => match <[Value; 2]>::try_from(found) {
            Ok([Value::BulkString(record), Value::Int(now)]) => (Some(layout::decode(record)?), now),
            _ => return Err(misunderstood()),
        },
        _ => return Err(misunderstood()),
    };
    let now = u64::try_from(now).map_err(|_| misunderstood())?;
    Ok(answered(record.as_ref(), now, request))
}

fn answered(record: Option<&Record>, now: u64, request: &Claim) -> ClaimAnswer {
    protocol::claim(record, Fence::default(), request, Timestamp::from_micros(now)).answer
}

impl Store for RedisStore {
    async fn claim(&self, key: &RecordKey, request: &Claim) -> Result<ClaimAnswer, StoreError> {
        let name = self.0.prefix.name(key);
        let mark = self.0.hints.mark(key);
        if self.0.hints.has(mark)
            && self.0.replicas.is_none()
            && let Some(answer) = self.replay(&name, request).await?
        {
            return Ok(answer);
        }
        let mut call = CLAIM.call(&name, 160);
        call.arg(&layout::first_grant(request));
        call.arg(layout::micros(request.lease)).arg(layout::micros(request.ttl));
        let print = request.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
        let most_attempts = request.max_attempts.map_or(0, std::num::NonZeroU32::get);
        let settles = protocol::may_settle(request);
        // Each argument costs the server: none is sent behind the last that says something.
        if self.0.replicas.is_some() || settles || most_attempts != 0 {
            call.arg(print).arg(u8::from(settles)).arg(most_attempts);
        } else if !print.is_empty() {
            call.arg(print);
        }
        self.replicate(&mut call);
        let answer = claimed(self.ask_replicated(name, Request::of(&CLAIM, call)).await?, request)?;
        match answer {
            ClaimAnswer::Replay(_) => self.0.hints.put(mark),
            _ => self.0.hints.take(mark),
        }
        Ok(answer)
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        let mut call = RENEW.call(&self.0.prefix.name(key), 64);
        call.arg(&layout::holder(&request.owner, request.fence)).arg(layout::micros(request.lease));
        match number(&self.ask_apart(Request::of(&RENEW, call)).await?)? {
            1 => Ok(RenewAnswer::Held),
            _ => Ok(RenewAnswer::Lost),
        }
    }

    async fn record_step(
        &self,
        key: &RecordKey,
        request: &RecordStep,
    ) -> Result<RecordStepAnswer, StoreError> {
        self.check_size(&request.step.result)?;
        let name = self.0.prefix.name(key);
        let step = layout::step(&request.step);
        let no_room = || StoreError::no_room_for_step(step.len(), layout::LARGEST);
        let mut call = RECORD_STEP.call(&name, 64 + step.len());
        call.arg(&layout::holder(&request.owner, request.fence)).arg(request.position).arg(&step);
        self.replicate(&mut call);
        match number(&self.ask_replicated(name, Request::of(&RECORD_STEP, call)).await?)? {
            1 => Ok(RecordStepAnswer::Recorded),
            -2 => Err(no_room()),
            _ => Ok(RecordStepAnswer::Lost),
        }
    }

    async fn complete(&self, key: &RecordKey, request: &Complete) -> Result<CompleteAnswer, StoreError> {
        self.check_size(&request.result)?;
        let name = self.0.prefix.name(key);
        let (kind, result) = layout::terminal(request.verdict, &request.result);
        let mut call = COMPLETE.call(&name, 96 + result.len());
        call.arg(&layout::holder(&request.owner, request.fence)).arg(&[layout::VERSION, kind[0], kind[1]]);
        call.arg(layout::micros(request.ttl)).arg(result);
        self.replicate(&mut call);
        match number(&self.ask_replicated(name, Request::of(&COMPLETE, call)).await?)? {
            1 => {
                self.0.hints.put(self.0.hints.mark(key));
                Ok(CompleteAnswer::Done)
            }
            _ => Ok(CompleteAnswer::Lost),
        }
    }

    async fn release(&self, key: &RecordKey, request: &Release) -> Result<ReleaseAnswer, StoreError> {
        let cause = match request.cause {
            ReleaseCause::Failed => "F",
            ReleaseCause::Abandoned => "A",
            ReleaseCause::Doubtful => "D",
            ReleaseCause::Unused => "U",
        };
        let mut call = RELEASE.call(&self.0.prefix.name(key), 64);
        call.arg(&layout::holder(&request.owner, request.fence)).arg(cause);
        call.arg(layout::micros(request.retry_after));
        match number(&self.ask_apart(Request::of(&RELEASE, call)).await?)? {
            1 => Ok(ReleaseAnswer::Released),
            2 => Ok(ReleaseAnswer::InDoubt),
            _ => Ok(ReleaseAnswer::Lost),
        }
    }

    async fn resolve(&self, key: &RecordKey, resolution: &Resolution) -> Result<ResolveAnswer, StoreError> {
        let name = self.0.prefix.name(key);
        let mut call = RESOLVE.call(&name, 64);
        match resolution {
            Resolution::Record(verdict, result) => {
                self.check_size(result)?;
                let (kind, result) = layout::terminal(*verdict, result);
                call.arg(&kind).arg(result);
            }
            Resolution::Release => {
                call.arg("").arg("");
            }
        }
        match number(&self.ask_replicated(name, Request::of(&RESOLVE, call)).await?)? {
            0 => Ok(ResolveAnswer::Absent),
            1 => Ok(ResolveAnswer::Resolved),
            state => u8::try_from(state)
                .ok()
                .and_then(layout::state)
                .map(ResolveAnswer::NotInDoubt)
                .ok_or_else(layout::damaged),
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let mut delete = cmd("DEL");
        delete.arg(self.0.prefix.name(key));
        let (request, link, time) = (Request::plain(delete), self.0.link.clone(), self.0.operation_timeout);
        // Asked again, it might delete the record of a claim that came in between.
        let asked = apart(async move {
            retried(time, || async {
                match link.ask(&request).await {
                    Err(error) if error.is_outcome_unknown() => Ok(Err(error)),
                    answer => answer.map(Ok),
                }
            })
            .await
        });
        Ok(number(&asked.await??)? > 0)
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        let mut get = cmd("GET");
        get.arg(self.0.prefix.name(key));
        match self.ask(Request::plain(get)).await? {
            Value::Nil => Ok(None),
            Value::BulkString(record) => layout::decode(record).map(Some),
            _ => Err(misunderstood()),
        }
    }

    /// Nothing is left to do: the server deletes a record when it expires.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (link, prefix, request) = (self.0.link.clone(), self.0.prefix.clone(), request.clone());
        let time = self.0.operation_timeout;
        apart(async move { retried(time, || listing::page(&link, &prefix, &request)).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let (link, time) = (self.0.link.clone(), self.0.operation_timeout);
        apart(async move {
            let mut found = check::look(&link, time).await?.inspection();
            found.now = Some(retried(time, || listing::now(&link)).await?);
            Ok(found)
        })
        .await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.max_result_bytes)
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("prefix", &self.0.prefix).finish_non_exhaustive()
    }
}
