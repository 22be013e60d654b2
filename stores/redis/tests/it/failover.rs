//! Tests of `RedisStore` behind sentinels: the master dies and its replica is promoted.

use crate::support;

use std::time::Duration;

use idem_redis::{RedisStore, RedisStoreBuilder};
use idem_runtime::Store as _;
use idem_test_servers::{RedisSentinel, until};
use support::*;

fn builder(servers: &RedisSentinel) -> RedisStoreBuilder {
    RedisStore::sentinel(RedisSentinel::SERVICE, servers.urls()).operation_timeout(PATIENCE)
}

#[tokio::test]
async fn what_a_replica_acknowledged_survives_a_failover_and_calls_go_on() {
    let mut servers = RedisSentinel::with(&[]);
    let store = builder(&servers).wait_replicas(1, Duration::from_secs(5)).connect().await.unwrap();
    // This store does not wait for replicas, because none is left after a failover.
    let after = builder(&servers).connect().await.unwrap();
    complete(&store, &key("done"), b"r").await;
    complete(&after, &key("the fast way is open"), b"r").await;
    let (owner, grant) = granted(&store, &key("running")).await;
    servers.kill_master();
    // This request is sent while there is no master, and the next master answers it.
    assert_eq!(replayed(&after, &key("done")).await, b"r");
    servers.until_promoted();
    finish(&after, &key("running"), owner, grant.fence, b"s").await;
    let (_, fresh) = granted(&after, &key("fresh")).await;
    assert!(fresh.fence > grant.fence);
}

/// With `min-replicas-to-write`, a master that reaches neither its replicas nor the sentinels refuses writes.
/// Such a master does not learn that a replica was promoted.
#[tokio::test]
async fn a_master_that_refuses_writes_without_replicas_is_left_for_the_one_that_the_sentinels_name() {
    let mut servers = RedisSentinel::with(&[]);
    let store = builder(&servers).connect().await.unwrap();
    // The claims also open the connection of this runtime.
    for number in 0..50 {
        granted(&store, &key(&format!("before {number}"))).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let command = |url: &str, words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        let () = command.arg(&words[1..]).query(&mut client(url)).unwrap();
    };
    let (master, promoted) = (servers.master.url(), servers.replica.port().to_string());
    command(&master, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    command(&servers.replica.url(), &["REPLICAOF", "NO", "ONE"]);
    let mut server = client(&master);
    until("the master has lost its replica", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut server).unwrap();
        info.contains("connected_slaves:0")
    });
    for sentinel in servers.urls() {
        command(&sentinel, &["SENTINEL", "REMOVE", RedisSentinel::SERVICE]);
        command(&sentinel, &["SENTINEL", "MONITOR", RedisSentinel::SERVICE, "127.0.0.1", &promoted, "2"]);
    }
    let (owner, grant) = granted(&store, &key("after")).await;
    store.renew(&key("after"), &renewal(owner, grant.fence)).await.unwrap();
    let held: u64 =
        redis::cmd("EXISTS").arg(name("after")).query(&mut client(&servers.replica.url())).unwrap();
    assert_eq!(held, 1);
    assert!(servers.master.server().id().is_some(), "the old master runs on");
}
