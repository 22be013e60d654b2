//! Many callers at once, whose requests go to the server together.

use crate::support;

use std::collections::HashMap;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use idem_redis::RedisStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer};
use idem_runtime::{RecordKey, Store, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Connection, cmd};
use support::*;

/// How many call at once.
const CALLERS: usize = 150;

/// A store whose connection of this runtime is open, which an operation opens for later ones.
async fn connected(redis: &Redis, server: &mut Connection) -> RedisStore {
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut asked = 0;
    // The stores' own connection is the first that calls a script.
    while asked < 2 {
        store.claim(&key("first"), &claim_request()).await.unwrap();
        let clients: String = cmd("CLIENT").arg("LIST").query(server).unwrap();
        asked = clients.matches("cmd=eval").count();
    }
    store
}

fn keys(count: usize) -> Vec<RecordKey> {
    (0..count).map(|number| key(&number.to_string())).collect()
}

/// How often each command was called by clients since the last look. What scripts do is counted under its own name.
fn commands(server: &mut Connection) -> HashMap<String, u64> {
    let info: String = cmd("INFO").arg("commandstats").query(server).unwrap();
    cmd("CONFIG").arg("RESETSTAT").query::<()>(server).unwrap();
    let counts = info.lines().filter_map(|line| {
        let (name, figures) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((name.to_owned(), figures.split(',').next()?.parse().ok()?))
    });
    counts.collect()
}

#[tokio::test]
async fn requests_that_wait_go_in_one_call_of_a_script_and_replays_in_one_read() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let store = connected(&redis, &mut server).await;
    commands(&mut server);
    let (keys, requests) = (keys(CALLERS), vec![claim_request(); CALLERS]);
    let claims = keys.iter().zip(&requests).map(|(key, request)| store.claim(key, request));
    let grants: Vec<_> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
    let called = commands(&mut server);
    assert!(called["evalsha"] < 20, "{called:?}");
    assert_eq!(called["set"], CALLERS as u64);
    let completions = keys.iter().zip(&requests).zip(&grants).map(async |((key, request), grant)| {
        let ClaimAnswer::Granted(grant) = grant else { panic!("{grant:?}") };
        store.complete(key, &completion(request.owner, grant.fence, b"r")).await.unwrap()
    });
    assert!(join_all(completions).await.into_iter().all(|done| done == CompleteAnswer::Done));
    let called = commands(&mut server);
    assert!(called["evalsha"] < 20, "{called:?}");
    let replays = join_all(keys.iter().chain(&keys).map(|key| replayed(&store, key))).await;
    assert!(replays.into_iter().all(|result| result == b"r"));
    let called = commands(&mut server);
    // A few that collide in the memory of what has a result go by the script.
    assert!(called["mget"] < 20 && called["get"] < 40, "{called:?}");
}

#[tokio::test]
async fn of_many_claims_on_few_keys_in_one_call_one_of_each_is_granted() {
    let redis = Redis::start();
    let store = connected(&redis, &mut client(&redis.url())).await;
    let keys = keys(3);
    let claims = (0..CALLERS).map(async |number| {
        let request = claim_request();
        (number % 3, store.claim(&keys[number % 3], &request).await.unwrap())
    });
    let mut grants = [0; 3];
    for (key, answer) in join_all(claims).await {
        match answer {
            ClaimAnswer::Granted(_) => grants[key] += 1,
            ClaimAnswer::Busy { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(grants, [1; 3]);
}

#[tokio::test]
async fn what_the_server_refuses_of_a_lot_is_one_callers_error() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let store = connected(&redis, &mut server).await;
    let keys = keys(CALLERS);
    // In the middle of the lot.
    cmd("LPUSH").arg(name("70")).arg("of another program").query::<()>(&mut server).unwrap();
    let answers = join_all(keys.iter().map(async |key| store.claim(key, &claim_request()).await)).await;
    for (number, answer) in answers.into_iter().enumerate() {
        match answer {
            Ok(ClaimAnswer::Granted(_)) => assert_ne!(number, 70),
            Err(error) => {
                assert_eq!((number, error.kind()), (70, StoreErrorKind::CorruptRecord));
            }
            other => panic!("{number}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_forgot_the_script_of_a_lot_is_told_it_again() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let store = connected(&redis, &mut server).await;
    for round in 0..3 {
        cmd("SCRIPT").arg("FLUSH").query::<()>(&mut server).unwrap();
        let keys: Vec<_> = (0..CALLERS).map(|number| key(&format!("{round}/{number}"))).collect();
        commands(&mut server);
        let answers = join_all(keys.iter().map(async |key| store.claim(key, &claim_request()).await)).await;
        assert!(answers.into_iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Granted(_)))));
        let called = commands(&mut server);
        assert!(called["evalsha"] + called["eval"] < 40, "{called:?}");
    }
}

#[tokio::test]
async fn a_claim_whose_caller_went_away_in_the_line_is_not_granted() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let store = connected(&redis, &mut server).await;
    let keys = keys(CALLERS);
    {
        let claims = keys.iter().map(|key| Box::pin(async { store.claim(key, &claim_request()).await }));
        let mut claims: Vec<_> = claims.collect();
        // Each asks or gets in line, and none is answered.
        for claim in &mut claims {
            assert!(claim.now_or_never().is_none());
        }
    }
    complete(&store, &key("after"), b"r").await;
    let records = join_all(keys.iter().map(async |key| store.get(key).await.unwrap())).await;
    let granted = records.into_iter().flatten().count();
    assert!(granted <= 8, "{granted} claims of callers that are gone");
}

#[test]
fn a_runtime_that_ends_takes_no_request_of_another_with_it() {
    let redis = Redis::start();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let store = runtime().block_on(RedisStore::connect(redis.url())).unwrap();
    for round in 0..20 {
        let keys: Vec<_> = (0..CALLERS).map(|number| key(&format!("{round}/{number}"))).collect();
        let short = runtime();
        for key in keys {
            let store = store.clone();
            short.spawn(async move { store.claim(&key, &claim_request()).await });
        }
        short.block_on(tokio::task::yield_now());
        drop(short);
        let long = runtime();
        long.block_on(async {
            let keys: Vec<_> = (0..CALLERS).map(|number| key(&format!("then {round}/{number}"))).collect();
            join_all(keys.iter().map(|key| complete(&store, key, b"r"))).await;
        });
    }
}
