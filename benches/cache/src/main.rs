//! Measures the cost of a replay from `SqliteStore` and `RedisStore`: plain, encrypted, and from a memory cache in
//! front of each.
//!
//! `cargo run --release -p idem-cache-cost [SECONDS]`. The arms take turns in short rounds, so that other load on the
//! machine affects all of them equally. It prints the median of the rounds and its ratio to the cache.

use std::error::Error;
use std::time::{Duration, Instant};

use bytes::Bytes;
use idem::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, StoredResult, Verdict};
use idem::{Key, KeyRing, RecordKey, RedisStore, Scope, SqliteStore, Store, StoreExt as _};
use idem_test_servers::Redis;

const ROUNDS: usize = 9;
/// The number of results to replay.
const KEPT: usize = 1_000;
const BYTES: usize = 200;

type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Anything<()> {
    let seconds: f64 = std::env::args().nth(1).map_or(Ok(0.5), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let folder = tempfile::tempdir()?;
    let server = Redis::start();
    let sqlite = SqliteStore::open(folder.path().join("idem.db"))?;
    let redis = RedisStore::connect(server.url()).await?;
    let ring = || KeyRing::new(1, &[7; 32]);
    let sealed_sqlite = SqliteStore::open(folder.path().join("sealed.db"))?.encrypted(ring());
    let sealed_redis = RedisStore::builder(server.url()).prefix("sealed:").connect().await?.encrypted(ring());
    let cached_sqlite = sealed_sqlite.clone().cached(2 * KEPT);
    let cached_redis = sealed_redis.clone().cached(2 * KEPT);
    for number in 0..KEPT {
        record(&sqlite, number).await?;
        record(&redis, number).await?;
        record(&sealed_sqlite, number).await?;
        record(&sealed_redis, number).await?;
    }
    let names = ["sqlite", "redis", "sqlite, encrypted", "redis, encrypted", "cached sqlite", "cached redis"];
    let mut rounds = [(); 6].map(|()| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        rounds[0].push(replays(&sqlite, time).await?);
        rounds[1].push(replays(&redis, time).await?);
        rounds[2].push(replays(&sealed_sqlite, time).await?);
        rounds[3].push(replays(&sealed_redis, time).await?);
        rounds[4].push(replays(&cached_sqlite, time).await?);
        rounds[5].push(replays(&cached_redis, time).await?);
    }
    let medians = rounds.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2]
    });
    println!("a replay of {BYTES} bytes, one after another; median of {ROUNDS} rounds of {seconds} s");
    for (name, median) in names.iter().zip(medians) {
        println!("{name:<20} {:>9.2} us   {:>7.1} times the cache", median * 1e6, median / medians[5]);
    }
    Ok(())
}

fn key(number: usize) -> Anything<RecordKey> {
    Ok(RecordKey::new(Scope::new("bench.replay")?, Key::new(format!("order/{number}"))?))
}

fn claim() -> Claim {
    Claim::new(Owner::random(), Duration::from_secs(30), Duration::from_secs(3_600))
}

async fn record(store: &impl Store, number: usize) -> Anything<()> {
    let (key, claim) = (key(number)?, claim());
    let ClaimAnswer::Granted(grant) = store.claim(&key, &claim).await? else {
        return Err("it is not a fresh key".into());
    };
    let result = StoredResult::Value(Bytes::from(vec![b'1'; BYTES]));
    let verdict = Verdict::Completed;
    let complete = Complete::new(claim.owner, grant.fence, verdict, result, claim.ttl);
    match store.complete(&key, &complete).await? {
        CompleteAnswer::Done => Ok(()),
        _ => Err("the claim was lost".into()),
    }
}

/// Returns the seconds that one replay takes.
async fn replays(store: &impl Store, time: Duration) -> Anything<f64> {
    let keys = (0..KEPT).map(key).collect::<Anything<Vec<_>>>()?;
    let (begin, mut count) = (Instant::now(), 0_u32);
    while begin.elapsed() < time {
        for key in &keys[..100] {
            match store.claim(key, &claim()).await? {
                ClaimAnswer::Replay(_) => count += 1,
                other => return Err(format!("not replayed but {other:?}").into()),
            }
        }
    }
    Ok(begin.elapsed().as_secs_f64() / f64::from(count))
}
