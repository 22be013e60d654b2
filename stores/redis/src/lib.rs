//! `RedisStore`: a store on Redis or Valkey, on one server, a cluster, or a master that sentinels name.
//!
//! Owns the public API. `builder` makes a store, and `check` examines the server. `asking` chooses a connection: the
//! stores' own (`connection`), that of the calling runtime (`runtime_connections`), on which what is ready goes in one
//! pipeline (`pipelined`), or the one that waits for replicas (`replication`). `name` makes the name of a key, `layout`
//! packs a record at the positions in `fields`, `scripts` restate the protocol on the server, and `failure` translates
//! errors. If a claim changes nothing, the script returns the record and the server's time, and this crate calls the
//! protocol's function for the answer.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod asking;
mod builder;
mod check;
#[cfg(feature = "cluster")]
mod cluster;
mod connection;
mod failure;
mod fields;
mod layout;
mod listing;
mod masters;
mod name;
mod pipelined;
mod replication;
mod runtime_connections;
mod scripts;
#[cfg(feature = "sentinel")]
mod sentinel;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value, cmd};

pub use self::builder::RedisStoreBuilder;
use self::connection::Connection;
use self::failure::misunderstood;
use self::name::Prefix;
use self::replication::Replication;
use self::runtime_connections::RuntimeConnections;
use self::scripts::{CLAIM, COMPLETE, RECORD_STEP, RELEASE, RENEW, RESOLVE, Request};
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{
    self, Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Record, RecordStep, RecordStepAnswer, Release,
    ReleaseAnswer, ReleaseCause, Renew, RenewAnswer, Resolution, ResolveAnswer, State, StoredResult,
    Timestamp,
};
use idem_core::support::hints::Hints;
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;
use idem_core::{Store, Waiters};

/// Keeps records on a Redis or Valkey server, with one packed string for each record.
///
/// Each operation is one script with one key, so one round trip, and uses the server's clock. The expiry of a key on
/// the server is the end of the record's retention, never of its lease: a record exists until its `expires_at`, to the
/// millisecond. A key in doubt, or in flight under the in-doubt policy, has no expiry.
///
/// An acknowledged operation survives what the server's data survives: a restart only with `appendonly`, and the loss
/// of the master only with [`wait_replicas`](RedisStoreBuilder::wait_replicas). `docs/stores/redis.md` in the
/// repository says how to run such a server. Connecting checks the server, and reports problems as events with the
/// target `idem`.
///
/// The store has one connection for each runtime that calls it, up to 256, and one in a separate thread for renewals
/// and retries. So callers in several runtimes may share a store, and a body that blocks its thread keeps its claim.
/// The store retries operations until there is an answer or the operation timeout is over. It does not retry a
/// [`forget`](Store::forget) that may have been applied.
///
/// ```no_run
/// # async fn example() -> Result<(), idem_core::StoreError> {
/// let store = idem_redis::RedisStore::connect("redis://127.0.0.1/").await?;
/// # let _ = store;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Inner>);

struct Inner {
    connection: Connection,
    runtime_connections: Arc<RuntimeConnections>,
    hints: Hints,
    prefix: Prefix,
    operation_timeout: Duration,
    max_result_bytes: usize,
    replication: Option<Arc<Replication>>,
    waiters: Waiters,
}

impl RedisStore {
    /// Connects to the server at `url`, `redis://[user:password@]host[:port][/db]`, with the default settings of a
    /// [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`RedisStoreBuilder::connect`].
    pub async fn connect(url: impl AsRef<str>) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// The answer to a claim on a key that has a result, with a read instead of a script. `None` if the key has no
    /// result.
    async fn replay(&self, name: &[u8], request: &Claim) -> Result<Option<ClaimAnswer>, StoreError> {
        let Value::BulkString(record) = self.ask(Request::get(name)).await? else { return Ok(None) };
        let record = layout::decode(record)?;
        let is_terminal = matches!(record.state, State::Completed | State::Failed);
        Ok(is_terminal.then(|| answered(Some(&record), 0, request)))
    }

    /// The call of the script for a claim.
    fn claim_call(&self, name: &[u8], request: &Claim) -> Cmd {
        let mut call = CLAIM.call(name, 160);
        call.arg(&layout::first_grant(request));
        call.arg(layout::micros(request.lease)).arg(layout::micros(request.ttl));
        let print = request.fingerprint.as_ref().map_or(&[][..], |fingerprint| fingerprint.as_bytes());
        let most_attempts = request.max_attempts.map_or(0, std::num::NonZeroU32::get);
        // Each argument costs time on the server, so trailing default arguments are left out.
        if self.0.replication.is_some() || request.recovers || most_attempts != 0 {
            call.arg(print).arg(u8::from(request.recovers)).arg(most_attempts);
        } else if !print.is_empty() {
            call.arg(print);
        }
        call
    }

    /// The call of the script that records a result.
    fn complete_call(&self, name: &[u8], request: &Complete) -> Cmd {
        let (kind, result) = layout::terminal(request.verdict, &request.result);
        let mut call = COMPLETE.call(name, 96 + result.len());
        call.arg(&layout::holder(&request.owner, request.fence)).arg(&[
            fields::FIRST_VERSION,
            kind[0],
            kind[1],
        ]);
        call.arg(layout::micros(request.ttl)).arg(result);
        self.replicate(&mut call);
        call
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

/// The number in a script's answer.
fn number(answer: &Value) -> Result<i64, StoreError> {
    match answer {
        Value::Int(-1) => Err(layout::damaged()),
        Value::Int(number) => Ok(*number),
        _ => Err(misunderstood()),
    }
}

/// The answer to a claim: the protocol's function, applied to the record that the script found and its time.
fn claimed(answer: Value, request: &Claim) -> Result<ClaimAnswer, StoreError> {
    let (record, now) = match answer {
        Value::Int(now) => (None, now),
        // A live record that is completed, failed or in doubt: the answer does not depend on the time.
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
            && self.0.replication.is_none()
            && let Some(answer) = self.replay(&name, request).await?
        {
            return Ok(answer);
        }
        let mut call = self.claim_call(&name, request);
        self.replicate(&mut call);
        let asked = Request::of(&CLAIM, call);
        let answer = if self.0.replication.is_some() {
            Box::pin(self.ask_replicated(name, asked)).await?
        } else {
            self.ask(asked).await?
        };
        let answer = claimed(answer, request)?;
        self.0.hints.claimed(mark, matches!(answer, ClaimAnswer::Replay(_)));
        Ok(answer)
    }

    async fn renew(&self, key: &RecordKey, request: &Renew) -> Result<RenewAnswer, StoreError> {
        let mut call = RENEW.call(&self.0.prefix.name(key), 64);
        call.arg(&layout::holder(&request.owner, request.fence)).arg(layout::micros(request.lease));
        match number(&self.ask_apart(Request::of(&RENEW, call)).await?)? {
            1 => Ok(RenewAnswer::Held),
            2 => Ok(RenewAnswer::HeldInDoubt),
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
        let no_room = || StoreError::no_room_for_step(step.len(), fields::LARGEST);
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
        let call = self.complete_call(&name, request);
        // Boxed, so that the future of a call has no room for it while its body runs.
        match number(&Box::pin(self.ask_replicated(name, Request::of(&COMPLETE, call))).await?)? {
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
            ReleaseCause::NothingHappened => "N",
            _ => {
                return Err(StoreError::configuration(
                    "this version of the Redis store does not know that cause",
                ));
            }
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
            Resolution::Record(verdict, result) | Resolution::RecordSeen(_, verdict, result) => {
                self.check_size(result)?;
                let (kind, result) = layout::terminal(*verdict, result);
                call.arg(&kind).arg(result);
            }
            Resolution::Release | Resolution::ReleaseSeen(_) => {
                call.arg("").arg("");
            }
            Resolution::ForgetSeen(_) => {
                call.arg("forget").arg("");
            }
            _ => {
                return Err(StoreError::configuration(
                    "this version of the Redis store does not know that resolution",
                ));
            }
        }
        call.arg(resolution.seen().map(layout::seen).unwrap_or_default());
        let state =
            |number: i64| u8::try_from(number).ok().and_then(layout::state).ok_or_else(layout::damaged);
        match number(&self.ask_replicated(name, Request::of(&RESOLVE, call)).await?)? {
            0 => Ok(ResolveAnswer::Absent),
            1 => Ok(ResolveAnswer::Resolved),
            changed @ ..=-2 => state(-changed).map(ResolveAnswer::Changed),
            other => state(other).map(ResolveAnswer::NotInDoubt),
        }
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        let mut delete = cmd("DEL");
        delete.arg(self.0.prefix.name(key));
        let (request, connection, time) =
            (Request::plain(delete), self.0.connection.clone(), self.0.operation_timeout);
        // A repeated request might delete the record of a claim that came in between.
        let asked = apart(async move {
            retried(time, || async {
                match connection.ask(&request).await {
                    Err(error) if error.is_outcome_unknown() => Ok(Err(error)),
                    answer => answer.map(Ok),
                }
            })
            .await
        });
        Ok(number(&asked.await??)? > 0)
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        match self.ask(Request::get(&self.0.prefix.name(key))).await? {
            Value::Nil => Ok(None),
            Value::BulkString(record) => layout::decode(record).map(Some),
            _ => Err(misunderstood()),
        }
    }

    /// Does nothing, because the server deletes a record when it expires.
    async fn purge(&self, _limit: usize) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (connection, prefix, request) =
            (self.0.connection.clone(), self.0.prefix.clone(), request.clone());
        let time = self.0.operation_timeout;
        apart(async move { retried(time, || listing::page(&connection, &prefix, &request)).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let (connection, time) = (self.0.connection.clone(), self.0.operation_timeout);
        apart(async move {
            let mut found = check::look(&connection, time).await?.inspection();
            found.now = Some(retried(time, || listing::now(&connection)).await?);
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
