//! Tests of `RedisStore` on a cluster of three masters: the conformance kit, and slots that move under load.

use crate::support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use idem_redis::RedisStore;
use idem_runtime::Store as _;
use idem_runtime::protocol::State;
use idem_test_servers::{RedisCluster, until};
use idem_testing::conformance::{self, Profile, Subject};
use redis::{Commands as _, cmd};
use support::*;

async fn connect(cluster: &RedisCluster) -> RedisStore {
    let builder = RedisStore::cluster(cluster.urls()).max_result_bytes(1 << 20);
    builder.operation_timeout(PATIENCE).connect().await.unwrap()
}

/// The themes of the conformance kit that may depend on the node of a key.
const THEMES: [&str; 7] = ["transitions", "histories", "races", "duels", "listing", "purge", "dropped"];

#[test]
fn a_cluster_keeps_the_rules_of_the_kit() {
    let cluster = Arc::new(RedisCluster::start());
    for theme in THEMES {
        let cluster = cluster.clone();
        let subject = move || {
            let cluster = cluster.clone();
            async move {
                let subject = Subject::new(connect(&cluster).await, Profile::real_clock().sample(32));
                subject.handle(connect(&cluster).await)
            }
        };
        conformance::run_theme(theme, subject).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slots_that_move_under_load_lose_no_call_and_no_record() {
    let cluster = Arc::new(RedisCluster::start());
    let store = connect(&cluster).await;
    complete_all(&store, "before/", 500).await;
    let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let lanes: Vec<_> = (0..16)
        .map(|lane| {
            let (store, over, calls) = (store.clone(), over.clone(), calls.clone());
            tokio::spawn(async move {
                let mut round = 0;
                while !over.load(Ordering::Relaxed) {
                    complete(&store, &key(&format!("during/{lane}/{round}")), b"r").await;
                    assert_eq!(replayed(&store, &key(&format!("before/{}", round % 500))).await, b"r");
                    round += 1;
                    calls.fetch_add(1, Ordering::Relaxed);
                }
                round
            })
        })
        .collect();
    let moving = cluster.clone();
    tokio::task::spawn_blocking(move || {
        for (from, to) in [(0, 1), (1, 2), (0, 1), (1, 2)] {
            let before = calls.load(Ordering::Relaxed);
            moving.move_slots(from, to, 150);
            until("there is load", || calls.load(Ordering::Relaxed) > before + 30);
        }
    })
    .await
    .unwrap();
    over.store(true, Ordering::Relaxed);
    for (lane, rounds) in lanes.into_iter().enumerate() {
        for round in 0..rounds.await.unwrap() {
            let record = store.get(&key(&format!("during/{lane}/{round}"))).await.unwrap().unwrap();
            assert_eq!((record.state, record.attempt), (State::Completed, 1));
        }
    }
    replay_all(&store, "before/", 500).await;
    // The retention has moved with the key.
    let record = store.get(&key("before/0")).await.unwrap().unwrap();
    assert!(record.ttl == TTL && record.expires_at.is_some());
}

#[tokio::test]
async fn a_shard_that_is_down_holds_up_no_other_and_no_process_that_starts() {
    let mut cluster = RedisCluster::start();
    let urls = cluster.urls();
    // Long enough for two tries to connect to the silent node.
    let connect = || RedisStore::cluster(urls.clone()).operation_timeout(Duration::from_secs(12)).connect();
    let store = connect().await.unwrap();
    let mut first = client(&urls[0]);
    for url in &urls {
        let setting = ["SET", "cluster-require-full-coverage", "no"];
        let () = cmd("CONFIG").arg(&setting).query(&mut client(url)).unwrap();
    }
    let mut here = Vec::new();
    for number in 0..30 {
        let name_of = number.to_string();
        complete(&store, &key(&name_of), b"r").await;
        // This node returns an error for a key of another node.
        if first.exists::<_, bool>(name(&name_of)).unwrap_or(false) {
            here.push(name_of);
        }
    }
    // The node is stopped, not killed, because a client forgets a node that refuses its connection.
    cluster.node(2).signal("-STOP");
    let () = cmd("SCRIPT").arg("FLUSH").query(&mut first).unwrap();
    for number in &here {
        assert!(store.forget(&key(number)).await.unwrap());
        complete(&store, &key(number), b"again").await;
    }
    let late = connect().await.unwrap();
    assert_eq!(replayed(&late, &key(&here[0])).await, b"again");
    late.inspect().await.unwrap();
}
