//! The arms on Redis: `SET NX PX` and `SET PX`, or `GET`, over one connection, and the libraries that use Redis.

use std::time::Duration;

use cached::{AsyncRedisCache, ConcurrentCachedAsync as _};
use idem::RedisStore;
use idem_test_servers::Redis;
use idem_test_servers::meter::Meter;
use idempotent::store::valkey::ValkeyStore;
use redis::aio::MultiplexedConnection;
use redis::{Client, cmd};

use crate::arm::{Anything, Arm, Contest, RECEIPT, call, none, ours, wrong};

async fn raw(url: &str) -> Anything<Arm> {
    let connection = Client::open(url)?.get_multiplexed_async_connection().await?;
    let reading = connection.clone();
    let fresh = call(move |key| pay(connection.clone(), key));
    let replay = call(move |key| {
        let mut connection = reading.clone();
        async move {
            let value: String = cmd("GET").arg(key).query_async(&mut connection).await?;
            if value == RECEIPT { Ok(()) } else { Err(wrong()) }
        }
    });
    Ok(Arm { name: "two `SET`, a `GET`", fresh, replay, work: None })
}

async fn pay(mut connection: MultiplexedConnection, key: String) -> Anything<()> {
    let claim = cmd("SET").arg(&key).arg("pending").arg("NX").arg("PX").arg(30_000).to_owned();
    let claimed: bool = claim.query_async(&mut connection).await?;
    let complete = cmd("SET").arg(&key).arg(RECEIPT).arg("PX").arg(3_600_000).to_owned();
    let recorded: bool = complete.query_async(&mut connection).await?;
    if claimed && recorded { Ok(()) } else { Err(wrong()) }
}

async fn by_cached(url: &str) -> Anything<Arm> {
    let cache = AsyncRedisCache::<String, String>::builder("cached")
        .ttl(Duration::from_secs(3_600))
        .connection_string(url)
        .build()
        .await?;
    let cache = std::sync::Arc::new(cache);
    // As its macro does it: read, run, store. It claims nothing, so concurrent calls all run.
    let one = |fresh: bool| {
        let cache = cache.clone();
        call(move |key: String| {
            let cache = cache.clone();
            async move {
                let found = cache.async_cache_get(&key).await?;
                if found.is_none() {
                    cache.async_cache_set(key, RECEIPT.to_owned()).await?;
                }
                if found.is_none() == fresh { Ok(()) } else { Err(wrong()) }
            }
        })
    };
    Ok(Arm { name: "crate `cached` 4.1", fresh: one(true), replay: one(false), work: None })
}

async fn arms(url: &str) -> Anything<Vec<Arm>> {
    let mut arms = vec![raw(url).await?];
    arms.extend(ours(&RedisStore::connect(url).await?));
    arms.push(crate::idempotent::arm(ValkeyStore::new(Client::open(url)?).await?));
    arms.push(by_cached(url).await?);
    Ok(arms)
}

pub(crate) async fn contest() -> Anything<Contest> {
    let mut redis = Redis::start();
    let mut all = arms(&redis.url()).await?;
    all.push(none());
    let mut metered = Vec::new();
    for index in 0..all.len() - 1 {
        let meter = Meter::before(redis.server().port()).await?;
        let url = format!("redis://127.0.0.1:{}", meter.port);
        metered.push((arms(&url).await?.swap_remove(index), meter));
    }
    let id = redis.server().id().ok_or("the server ended")?;
    Ok(Contest { store: "Redis".to_owned(), arms: all, metered, server: Some((id, Box::new(redis))) })
}
