//! Tests of `RedisStore` with the runtimes of its callers: several runtimes, runtimes that have ended or are
//! blocked, and runtimes with a paused clock.

use crate::support;

use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use idem_redis::RedisStore;
use idem_runtime::Store;
use idem_test_servers::{Redis, until};
use redis::cmd;
use support::*;
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How many connections the server has, not including this test's own.
fn connections(server: &mut redis::Connection) -> usize {
    let list: String = cmd("CLIENT").arg("LIST").query(server).unwrap();
    list.lines().count() - 1
}

#[test]
fn a_store_outlives_the_runtime_it_was_made_in() {
    let redis = Redis::start();
    let first = runtime();
    let store = first.block_on(connect(&redis));
    first.block_on(complete_all(&store, "", 20));
    drop(first);
    for _ in 0..30 {
        runtime().block_on(replay_all(&store, "", 20));
    }
    let mut server = client(&redis.url());
    until("the connections of the runtimes that ended are closed", || connections(&mut server) <= 1);
    drop(store);
}

#[test]
fn a_blocked_runtime_holds_up_no_other() {
    let redis = Redis::start();
    let store = runtime().block_on(connect(&redis));
    let (started, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let blocked = thread::spawn({
        let store = store.clone();
        move || {
            runtime().block_on(async {
                complete_all(&store, "before/", 20).await;
                started.send(granted(&store, &key("held")).await).unwrap();
                ended.recv().unwrap();
            });
        }
    });
    let (owner, grant) = begun.recv().unwrap();
    runtime().block_on(async {
        let begin = Instant::now();
        complete_all(&store, "other/", 100).await;
        renew(&store, &key("held"), owner, grant.fence).await;
        // A request that the blocked runtime delays would take longer, because its first try ends only after
        // a third of the operation timeout.
        assert!(begin.elapsed() < PATIENCE / 4, "{:?}", begin.elapsed());
    });
    end.send(()).unwrap();
    blocked.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn paused_time_does_not_time_out_a_real_server() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut server = client(&redis.url());
    complete_all(&store, "", 20).await;
    let () = cmd("CLIENT").arg("PAUSE").arg(300).arg("ALL").query(&mut server).unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    store.renew(&key("a"), &renewal(owner, grant.fence)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_two_connections() {
    let redis = Redis::start();
    let store = connect(&redis).await;
    let calls = (0..200).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { complete(&store, &key(&number.to_string()), b"r").await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let mut server = client(&redis.url());
    until("all use two connections", || connections(&mut server) == 2);
    drop(store);
    until("a store that is dropped closes its connections", || connections(&mut server) == 0);
}
