//! The same work in each way: claim a key and record a result, or be given the recorded one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, StoredResult, Verdict,
};
use idem_runtime::{Key, Operation, RecordKey, RedisStore, Scope, Store};
use idempotent::fingerprint::{DefaultFingerprintStrategy, FingerprintStrategy as _};
use idempotent::store::valkey::ValkeyStore;
use idempotent::store::{IdempotencyStore as _, InsertResult};
use idempotent::{CachedResponse, IdempotencyKey, Metadata};
use redis::aio::MultiplexedConnection;
use redis::{Client, Script, cmd};

use crate::Anything;

const LEASE: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(3_600);
const RESULT: &[u8] = &[b'r'; 64];

const CLAIM: &str = "local v = redis.call('GET', KEYS[1]) if v then return v end \
    redis.call('SET', KEYS[1], 'p' .. ARGV[1], 'PX', ARGV[2]) return false";
const COMPLETE: &str = "if redis.call('GET', KEYS[1]) ~= 'p' .. ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], 'd' .. ARGV[2], 'PX', ARGV[3]) return 1";

#[derive(Clone, Copy)]
pub(crate) enum Arm {
    /// `SET NX PX`, then `SET PX`; or `GET`.
    Raw,
    /// Two scripts that compare an owner, and keep nothing else.
    Scripts,
    Idempotent,
    /// `RedisStore` itself.
    Store,
    /// `Operation::run` on it: with key, codec, events and the lease's upkeep.
    Call,
}

impl Arm {
    pub(crate) const ALL: [Self; 5] = [Self::Raw, Self::Scripts, Self::Idempotent, Self::Store, Self::Call];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw commands",
            Self::Scripts => "thin fenced scripts",
            Self::Idempotent => "crate idempotent",
            Self::Store => "RedisStore",
            Self::Call => "Operation on RedisStore",
        }
    }
}

#[derive(Clone)]
pub(crate) struct Arms {
    connection: MultiplexedConnection,
    claim: Arc<Script>,
    complete: Arc<Script>,
    idempotent: Arc<ValkeyStore>,
    store: RedisStore,
    scope: Scope,
    operation: Arc<Operation>,
}

fn wrong() -> Box<dyn std::error::Error + Send + Sync> {
    "another answer than there must be".into()
}

impl Arms {
    pub(crate) async fn new(url: &str) -> Anything<Self> {
        let client = Client::open(url)?;
        Ok(Self {
            connection: client.get_multiplexed_async_connection().await?,
            claim: Arc::new(Script::new(CLAIM)),
            complete: Arc::new(Script::new(COMPLETE)),
            idempotent: Arc::new(ValkeyStore::new(client).await?),
            store: RedisStore::connect(url).await?,
            scope: Scope::new("cost")?,
            operation: Arc::new(Operation::new("cost.call").ttl(TTL)),
        })
    }

    /// A call whose key is new.
    pub(crate) async fn fresh(&self, arm: Arm, key: &str) -> Anything<()> {
        let mut connection = self.connection.clone();
        let done = match arm {
            Arm::Raw => {
                let key = format!("raw/{key}");
                let claim = cmd("SET").arg(&key).arg("pending").arg("NX").arg("PX").arg(30_000).to_owned();
                let claimed: bool = claim.query_async(&mut connection).await?;
                let complete = cmd("SET").arg(&key).arg(RESULT).arg("PX").arg(3_600_000).to_owned();
                claimed && complete.query_async(&mut connection).await?
            }
            Arm::Scripts => {
                let (key, owner) = (format!("scripts/{key}"), Owner::random());
                let mut claim = self.claim.key(&key);
                let claim = claim.arg(owner.as_bytes()).arg(30_000);
                let claimed: Option<Vec<u8>> = claim.invoke_async(&mut connection).await?;
                let mut complete = self.complete.key(&key);
                let complete = complete.arg(owner.as_bytes()).arg(RESULT).arg(3_600_000);
                claimed.is_none() && complete.invoke_async(&mut connection).await?
            }
            Arm::Idempotent => {
                let key = IdempotencyKey::new(format!("idempotent/{key}"))?;
                let print = DefaultFingerprintStrategy.compute("charge", b"order");
                let entry = idempotent::IdempotencyEntry::new(print, TTL);
                match self.idempotent.try_insert(&key, entry.clone()).await? {
                    InsertResult::Claimed { fencing_token } => {
                        let body = Bytes::from_static(RESULT);
                        let response =
                            CachedResponse { status_code: 200, metadata: Metadata::default(), body };
                        self.idempotent.complete(&key, entry.complete(response), fencing_token).await?;
                        true
                    }
                    InsertResult::Exists(_) => false,
                }
            }
            Arm::Store => {
                let key = self.key(key)?;
                let claim = claim();
                match self.store.claim(&key, &claim).await? {
                    ClaimAnswer::Granted(grant) => {
                        let result = StoredResult::Value(Bytes::from_static(RESULT));
                        let verdict = Verdict::Completed;
                        let complete =
                            Complete { owner: claim.owner, fence: grant.fence, verdict, result, ttl: TTL };
                        self.store.complete(&key, &complete).await? == CompleteAnswer::Done
                    }
                    _ => false,
                }
            }
            Arm::Call => self.call(key).await?,
        };
        if done { Ok(()) } else { Err(wrong()) }
    }

    /// A call whose result is recorded.
    pub(crate) async fn replay(&self, arm: Arm, key: &str) -> Anything<()> {
        let mut connection = self.connection.clone();
        let replayed = match arm {
            Arm::Raw => {
                let get = cmd("GET").arg(format!("raw/{key}")).to_owned();
                let value: Vec<u8> = get.query_async(&mut connection).await?;
                value == RESULT
            }
            Arm::Scripts => {
                let mut claim = self.claim.key(format!("scripts/{key}"));
                let claim = claim.arg(Owner::random().as_bytes()).arg(30_000);
                let value: Vec<u8> = claim.invoke_async(&mut connection).await?;
                value[1..] == *RESULT
            }
            Arm::Idempotent => {
                let key = IdempotencyKey::new(format!("idempotent/{key}"))?;
                let print = DefaultFingerprintStrategy.compute("charge", b"order");
                let entry = idempotent::IdempotencyEntry::new(print, TTL);
                matches!(self.idempotent.try_insert(&key, entry).await?, InsertResult::Exists(_))
            }
            Arm::Store => {
                let answer = self.store.claim(&self.key(key)?, &claim()).await?;
                matches!(answer, ClaimAnswer::Replay(replay) if replay.result == StoredResult::Value(Bytes::from_static(RESULT)))
            }
            Arm::Call => !self.call(key).await?,
        };
        if replayed { Ok(()) } else { Err(wrong()) }
    }

    /// Whether the body ran.
    async fn call(&self, key: &str) -> Anything<bool> {
        let mut ran = false;
        let value = async {
            ran = true;
            Ok::<_, idem_runtime::Error>("r".repeat(62))
        };
        let value = self.operation.run(&self.store, key, || value).await?;
        if value.len() == 62 { Ok(ran) } else { Err(wrong()) }
    }

    fn key(&self, key: &str) -> Anything<RecordKey> {
        Ok(RecordKey::new(self.scope.clone(), Key::new(key)?))
    }
}

fn claim() -> Claim {
    Claim {
        owner: Owner::random(),
        fingerprint: None,
        lease: LEASE,
        ttl: TTL,
        on_crash: OnCrash::Rerun,
        max_attempts: None,
        settles_doubt: false,
    }
}
