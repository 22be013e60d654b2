//! Tests of `RedisStore` with the runtimes of its callers: several, ended and blocked ones, and paused time.

use crate::support;

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use idem_redis::RedisStore;
use idem_runtime::{Error, Operation, Store};
use idem_test_servers::Redis;
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
    let store = first.block_on(RedisStore::connect(redis.url())).unwrap();
    first.block_on(async {
        for number in 0..20 {
            complete(&store, &key(&number.to_string()), b"r").await;
        }
    });
    drop(first);
    for _ in 0..30 {
        runtime().block_on(async {
            for number in 0..20 {
                assert_eq!(replayed(&store, &key(&number.to_string())).await, b"r");
            }
        });
    }
    let mut server = client(&redis.url());
    let begin = Instant::now();
    while connections(&mut server) > 1 {
        assert!(begin.elapsed() < Duration::from_secs(10), "{} connections", connections(&mut server));
        thread::sleep(Duration::from_millis(10));
    }
    drop(store);
}

#[test]
fn a_body_that_blocks_the_only_thread_of_its_runtime_keeps_its_claim() {
    const SHORT: Duration = Duration::from_millis(500);
    let redis = Redis::start();
    let store = runtime().block_on(RedisStore::connect(redis.url())).unwrap();
    let (started, begun) = mpsc::channel();
    let blocked = thread::spawn({
        let store = store.clone();
        move || {
            runtime().block_on(async {
                // The runtime's own connection is open before the body blocks.
                for number in 0..20 {
                    complete(&store, &key(&format!("before/{number}")), b"r").await;
                }
                let body = || async {
                    started.send(()).unwrap();
                    // The subject of the test: the body does not yield its thread.
                    thread::sleep(SHORT * 4);
                    Ok::<_, Error>("slow".to_owned())
                };
                Operation::new("test").lease(SHORT).run(&store, "a", body).await
            })
        }
    });
    begun.recv().unwrap();
    runtime().block_on(async {
        let mut refused = 0;
        while !blocked.is_finished() {
            let body = || async { Ok::<_, Error>("rival".to_owned()) };
            match Operation::new("test").lease(SHORT).run(&store, "a", body).await {
                Err(Error::InFlight { .. }) => refused += 1,
                Ok(value) => assert_eq!(value, "slow", "the claim was taken over"),
                Err(error) => panic!("{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(refused > 20, "{refused}");
    });
    assert_eq!(blocked.join().unwrap().unwrap(), "slow");
}

#[test]
fn a_blocked_runtime_holds_up_no_other() {
    let redis = Redis::start();
    let store = runtime().block_on(RedisStore::connect(redis.url())).unwrap();
    let (started, begun) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let blocked = thread::spawn({
        let store = store.clone();
        move || {
            runtime().block_on(async {
                for number in 0..20 {
                    complete(&store, &key(&format!("before/{number}")), b"r").await;
                }
                started.send(()).unwrap();
                ended.recv().unwrap();
            });
        }
    });
    begun.recv().unwrap();
    runtime().block_on(async {
        let begin = Instant::now();
        for number in 0..100 {
            complete(&store, &key(&format!("other/{number}")), b"r").await;
        }
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    });
    end.send(()).unwrap();
    blocked.join().unwrap();
}

#[test]
fn twenty_runtimes_that_take_turns_keep_their_connections() {
    let redis = Redis::start();
    let store = runtime().block_on(RedisStore::connect(redis.url())).unwrap();
    let runtimes: Vec<Runtime> = (0..20).map(|_| runtime()).collect();
    for round in 0..50 {
        for (number, runtime) in runtimes.iter().enumerate() {
            runtime.block_on(complete(&store, &key(&format!("{number}/{round}")), b"r"));
        }
    }
    let mut server = client(&redis.url());
    let info: String = cmd("INFO").arg("stats").query(&mut server).unwrap();
    let made = info.lines().find_map(|line| line.strip_prefix("total_connections_received:")).unwrap();
    assert!(made.parse::<u32>().unwrap() < 50, "{made} connections were made");
}

#[tokio::test(start_paused = true)]
async fn paused_time_does_not_time_out_a_real_server() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let mut server = client(&redis.url());
    for number in 0..20 {
        complete(&store, &key(&number.to_string()), b"r").await;
    }
    let () = cmd("CLIENT").arg("PAUSE").arg(300).arg("ALL").query(&mut server).unwrap();
    let (owner, grant) = granted(&store, &key("a")).await;
    store.renew(&key("a"), &renewal(owner, grant.fence)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_share_two_connections() {
    let redis = Redis::start();
    let store = RedisStore::connect(redis.url()).await.unwrap();
    let calls = (0..200).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { complete(&store, &key(&number.to_string()), b"r").await })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    let mut server = client(&redis.url());
    assert_eq!(connections(&mut server), 2);
    drop(store);
    let begin = Instant::now();
    while connections(&mut server) > 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "a store that is dropped keeps its connections");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn what_one_process_recorded_another_may_forget_and_run_again() {
    let redis = Redis::start();
    let (one, other) =
        (RedisStore::connect(redis.url()).await.unwrap(), RedisStore::connect(redis.url()).await.unwrap());
    for result in [b"first", b"other"] {
        complete(&one, &key("a"), result).await;
        assert_eq!(replayed(&one, &key("a")).await, result);
        assert_eq!(replayed(&other, &key("a")).await, result);
        assert!(other.forget(&key("a")).await.unwrap());
    }
    let (owner, grant) = granted(&one, &key("a")).await;
    other.renew(&key("a"), &renewal(owner, grant.fence)).await.unwrap();
}
