//! What a client's error means for the operation: applied, not applied, or unknown.
//!
//! If a server answers with an error, it has not applied the script. Most scripts write only with their last
//! command. The other scripts write twice; a server that cannot write, for example because its memory is
//! full, refuses their first write. The server's text is not passed on, because some texts repeat the
//! arguments.

use redis::{ErrorKind, FromRedisValue, RedisError, Value, from_redis_value};

use idem_core::StoreError;

/// The error for a failed attempt to connect: no request was sent yet.
pub(super) fn connecting(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::InvalidClientConfig | ErrorKind::EmptySentinelList | ErrorKind::RESP3NotSupported => {
            StoreError::configuration("the settings of the connection to Redis are wrong; see the source")
                .with_source(error)
        }
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => answered(&error),
        ErrorKind::MasterNameNotFoundBySentinel => StoreError::unavailable(
            "no sentinel knows a master by this name; check the name and the sentinels",
        )
        .with_source(error),
        _ => StoreError::unavailable("no connection to the Redis server; check its address and that it runs")
            .with_source(error),
    }
}

/// The error for a failed operation.
pub(super) fn asking(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::AuthenticationFailed => answered(&error),
        // The cluster's client returns this if it has no node for the request.
        ErrorKind::ClusterConnectionNotFound => {
            StoreError::unavailable("no connection to the cluster's node for this key").with_source(error)
        }
        ErrorKind::Io if error.is_timeout() => {
            StoreError::outcome_unknown("the Redis server did not answer in time").with_source(error)
        }
        ErrorKind::Io if error.is_connection_refusal() => {
            StoreError::unavailable("the Redis server refuses connections").with_source(error)
        }
        ErrorKind::Io => {
            StoreError::outcome_unknown("the connection to the Redis server broke").with_source(error)
        }
        _ => misunderstood(),
    }
}

/// The error for a URL. Does not repeat the URL, which may contain a password.
pub(super) fn wrong_url(error: RedisError) -> StoreError {
    StoreError::configuration(
        "the URL of the Redis server cannot be used; write `redis://[user:password@]host[:port][/db]`, or \
         `rediss://..` with the feature `redis-tls`",
    )
    .with_source(error)
}

/// The error for an answer in an unexpected form.
pub(super) fn misunderstood() -> StoreError {
    StoreError::outcome_unknown("the answer of the Redis server was not understood")
}

/// Converts an answer to the expected type.
pub(super) fn understood<T: FromRedisValue>(answer: Value) -> Result<T, StoreError> {
    from_redis_value(answer).map_err(|_| misunderstood())
}

fn answered(error: &RedisError) -> StoreError {
    let code = match error.kind() {
        ErrorKind::AuthenticationFailed => "AUTH",
        _ => error.code().unwrap_or("ERR"),
    };
    match code {
        "NOPERM" => StoreError::configuration(
            "the Redis user may not do this: see `docs/stores/redis.md` for the commands that it needs, on keys \
             with the store's prefix",
        ),
        "READONLY" => StoreError::unavailable(
            "the Redis server is a replica; if this is not a failover, connect to its master",
        ),
        "OOM" => StoreError::unavailable(
            "the Redis server is out of memory and writes nothing (OOM); raise `maxmemory`, or keep results for \
             less time; results already recorded are still replayed",
        ),
        "MISCONF" => StoreError::unavailable(
            "the Redis server cannot save to disk and refuses writes (MISCONF); see the server's log",
        ),
        "NOREPLICAS" => StoreError::unavailable(
            "the Redis server has fewer replicas than `min-replicas-to-write` asks for (NOREPLICAS)",
        ),
        "AUTH" | "NOAUTH" | "WRONGPASS" => StoreError::configuration(format!(
            "the Redis server refuses this user or password ({code}); check the URL and the server's ACL"
        )),
        "WRONGTYPE" => StoreError::corrupt_record(
            "the key holds a value of another type, so of another program: give the store a prefix of its own",
        ),
        // Temporary errors. Most of them last until a script, loading, a failover or a migration ends.
        "BUSY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "MOVED" | "ASK" | "NOSCRIPT"
        | "UNBLOCKED" => StoreError::unavailable(format!("the Redis server cannot do it now ({code})")),
        _ => StoreError::configuration(format!(
            "the Redis server refuses the operation ({code}); it must be Redis 7.0 or newer, or Valkey, with \
             scripts enabled"
        )),
    }
}
