//! Helpers for the Redis tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use idem_redis::RedisStore;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Fence, Grant, Owner, Renew, StoredResult, Verdict,
};
use idem_runtime::{Key, RecordKey, Scope, Store, StoreError};
use idem_test_servers::Redis;
use redis::{Client, Connection, cmd};
use tracing_subscriber::fmt::MakeWriter;

pub const LEASE: Duration = Duration::from_secs(30);
pub const TTL: Duration = Duration::from_secs(3_600);
/// Longer than a busy machine stops a server or this process.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn key(key: &str) -> RecordKey {
    RecordKey::new(Scope::new("test").unwrap(), Key::new(key).unwrap())
}

/// The name of this key on the server.
pub fn name(key: &str) -> String {
    format!("idem:{{test|{key}}}")
}

/// A claim by a new owner.
pub fn claim_request() -> Claim {
    Claim::new(Owner::random(), LEASE, TTL)
}

pub fn completion(owner: Owner, fence: Fence, result: &[u8]) -> Complete {
    let result = StoredResult::Value(Bytes::copy_from_slice(result));
    Complete::new(owner, fence, Verdict::Completed, result, TTL)
}

pub fn renewal(owner: Owner, fence: Fence) -> Renew {
    Renew::new(owner, fence, LEASE)
}

/// Claims a key that is free.
pub async fn granted(store: &impl Store, key: &RecordKey) -> (Owner, Grant) {
    let request = claim_request();
    match store.claim(key, &request).await.unwrap() {
        ClaimAnswer::Granted(grant) => (request.owner, grant),
        other => panic!("not granted but {other:?}"),
    }
}

/// Claims a free key and completes it.
pub async fn complete(store: &impl Store, key: &RecordKey, result: &[u8]) {
    let (owner, grant) = granted(store, key).await;
    let done = store.complete(key, &completion(owner, grant.fence, result)).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
}

/// The recorded result of a key.
pub async fn replayed(store: &impl Store, key: &RecordKey) -> Vec<u8> {
    match store.claim(key, &claim_request()).await.unwrap() {
        ClaimAnswer::Replay(replay) => match replay.result {
            StoredResult::Value(bytes) => bytes.to_vec(),
            other => panic!("{other:?}"),
        },
        other => panic!("not replayed but {other:?}"),
    }
}

/// A store that sends no request again because the machine is busy.
pub async fn connect(redis: &Redis) -> RedisStore {
    RedisStore::builder(redis.url()).operation_timeout(PATIENCE).connect().await.unwrap()
}

/// A store that gives up after about a second. Connecting may take longer.
pub async fn hasty(redis: &Redis) -> RedisStore {
    let builder = || RedisStore::builder(redis.url()).operation_timeout(Duration::from_millis(1_200));
    known(async || builder().connect().await).await
}

/// Repeats a request until its outcome is known.
pub async fn known<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let begin = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error:?}"),
        }
    }
}

/// The error of a request that fails each time. Where its time ended within a try, whose outcome nobody knows, the
/// request is sent again.
pub async fn refused<T: Debug>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> StoreError {
    for _ in 0..20 {
        let error = ask().await.unwrap_err();
        if !error.is_outcome_unknown() {
            return error;
        }
    }
    panic!("the outcome is always unknown");
}

/// Returns once so many clients are blocked.
pub async fn until_blocked(server: &mut Connection, count: u32) {
    let begin = Instant::now();
    let mut blocked = String::new();
    while !blocked.contains(&format!("blocked_clients:{count}\r")) {
        assert!(begin.elapsed() < PATIENCE, "{blocked}");
        blocked = cmd("INFO").arg("clients").query(server).unwrap();
        tokio::task::yield_now().await;
    }
}

/// Another program's connection.
pub fn client(url: &str) -> Connection {
    Client::open(url).unwrap().get_connection().unwrap()
}

/// Everything that is logged.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Logs what this thread does, until the guard is dropped.
    pub fn here(&self) -> tracing::subscriber::DefaultGuard {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_ansi(false);
        tracing::subscriber::set_default(subscriber.with_writer(self.clone()).finish())
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
