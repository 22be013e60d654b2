//! Helpers for the Redis tests.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

use std::fmt::Debug;
use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::StoreError;
use idem_test_servers::Redis;
use redis::{Client, Connection, cmd};

pub(crate) use crate::requests::*;

/// Longer than the time for which a busy machine stops a server or this process.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The name of this key on the server.
pub fn name(key: &str) -> String {
    format!("idem:{{test|{key}}}")
}

/// A store whose timeout is so long that a busy machine does not make it repeat a request.
pub async fn connect(redis: &Redis) -> RedisStore {
    RedisStore::builder(redis.url()).operation_timeout(PATIENCE).connect().await.unwrap()
}

/// A store that gives up after about a second. Connecting may take longer.
pub async fn hasty(redis: &Redis) -> RedisStore {
    let builder = || RedisStore::builder(redis.url()).operation_timeout(Duration::from_millis(1_200));
    known(async || builder().connect().await).await
}

/// Completes `count` keys. Each key is the prefix with a number after it.
pub async fn complete_all(store: &RedisStore, prefix: &str, count: u32) {
    for number in 0..count {
        complete(store, &key(&format!("{prefix}{number}")), b"r").await;
    }
}

/// Checks that a duplicate of each key of [`complete_all`] gets the result.
pub async fn replay_all(store: &RedisStore, prefix: &str, count: u32) {
    for number in 0..count {
        assert_eq!(replayed(store, &key(&format!("{prefix}{number}"))).await, b"r");
    }
}

/// Repeats a request after each transient error, until the request succeeds.
pub async fn known<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let begin = Instant::now();
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error:?}"),
        }
    }
}

/// The error of a request that always fails. Repeats the request while its outcome is unknown, as after a
/// timeout.
pub async fn refused<T: Debug>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> StoreError {
    for _ in 0..20 {
        let error = ask().await.unwrap_err();
        if !error.is_outcome_unknown() {
            return error;
        }
    }
    panic!("the outcome is always unknown");
}

/// Returns once `count` clients are blocked.
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
