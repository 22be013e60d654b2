//! Tests of what `RedisStore` keeps on its server, and how many commands it needs.

use crate::support;

use idem_runtime::protocol::{
    CompleteAnswer, Owner, RecordStepAnswer, Release, ReleaseAnswer, ReleaseCause, RenewAnswer, Resolution,
    ResolveAnswer, State,
};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::Redis;
use redis::{Commands as _, Connection, cmd};
use support::*;

#[tokio::test]
async fn a_fresh_call_is_two_commands_and_a_replay_is_one() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    // How many times each command was sent since the last look.
    let mut sent = || {
        let info: String = cmd("INFO").arg("commandstats").query(&mut server).unwrap();
        let () = cmd("CONFIG").arg("RESETSTAT").query(&mut server).unwrap();
        info
    };
    complete(&store, &key("the scripts are loaded"), b"r").await;
    sent();
    complete_all(&store, "", 10).await;
    let info = sent();
    // The scripts of the claim and of the completion both read, get the time, and write.
    for command in ["evalsha", "get", "set", "time"] {
        assert!(info.contains(&format!("cmdstat_{command}:calls=20,")), "{info}");
    }
    replay_all(&store, "", 10).await;
    let info = sent();
    assert!(info.contains("cmdstat_get:calls=10,") && !info.contains("evalsha"), "{info}");
}

#[tokio::test]
async fn expiry_on_the_server_is_retention_and_never_the_lease() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let (owner, grant) = granted(&store, &key("a")).await;
    let record = store.get(&key("a")).await.unwrap().unwrap();
    let at: u64 = cmd("PEXPIRETIME").arg(name("a")).query(&mut server).unwrap();
    let ends = record.expires_at.unwrap().as_micros();
    assert!(at + 1 >= ends.div_ceil(1_000) && at <= ends / 1_000, "{at} and {ends}");
    store.complete(&key("a"), &completion(owner, grant.fence, b"r")).await.unwrap();
    let left: u64 = server.pttl(name("a")).unwrap();
    assert!(left <= u64::try_from(TTL.as_millis()).unwrap() + 1, "{left}");
}

#[tokio::test]
async fn another_programs_value_is_corrupt_and_stays_as_it_is() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let () = server.set(name("text"), "x".repeat(200)).unwrap();
    let () = server.set(name("short"), &[1_u8, b'I', 0, 0]).unwrap();
    let () = server.lpush(name("list"), "x").unwrap();
    let mut newer = vec![3_u8; 100];
    newer[1] = b'C';
    let () = server.set(name("newer"), newer).unwrap();
    let mut running = packed(b'I', Owner::from_bytes([7; 16]), 1, 0);
    running[0] = 3;
    let () = server.set(name("running"), running).unwrap();
    for text in ["text", "short", "list", "newer", "running"] {
        let (key, request) = (key(text), claim_request());
        let complete = completion(request.owner, idem_runtime::Fence::new(1), b"r");
        let renew = renewal(request.owner, idem_runtime::Fence::new(1));
        for error in [
            store.claim(&key, &request).await.unwrap_err(),
            store.complete(&key, &complete).await.unwrap_err(),
            store.renew(&key, &renew).await.unwrap_err(),
            store.get(&key).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{text}: {error:?}");
            assert!(!format!("{error:?}{error}").contains(&name(text)), "{error:?}");
        }
        assert!(server.exists::<_, bool>(name(text)).unwrap());
        assert!(store.forget(&key).await.unwrap(), "an operator may take it away");
        granted(&store, &key).await;
    }
}

/// A record as stored on the server, of `owner`, with this state, fence and expiry.
fn packed(state: u8, owner: Owner, fence: u64, ends: u64) -> Vec<u8> {
    let mut bytes = vec![1, state, 0, 0];
    bytes.extend(owner.as_bytes());
    bytes.extend(fence.to_be_bytes());
    bytes.extend(3_u32.to_be_bytes());
    let ttl = u64::try_from(TTL.as_micros()).unwrap();
    for number in [1, 1, 1, ttl, 0, ends] {
        bytes.extend(u64::to_be_bytes(number));
    }
    bytes
}

#[tokio::test]
async fn a_fence_rises_also_where_the_clock_is_behind_the_last_one() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let ahead = 9_000_000_000_000_000 - 1;
    for state in [b'R', b'I'] {
        let () = server.set(name("a"), packed(state, Owner::from_bytes([7; 16]), ahead, 0)).unwrap();
        let (owner, grant) = granted(&store, &key("a")).await;
        assert_eq!((grant.fence.get(), grant.attempt), (ahead + 1, 4));
        // The record on the server has the fence of the grant.
        finish(&store, &key("a"), owner, grant.fence, b"r").await;
    }
    let mut last = packed(b'I', Owner::from_bytes([7; 16]), 5, 0);
    last[28..32].fill(0xFF);
    let () = server.set(name("a"), last).unwrap();
    assert_eq!(granted(&store, &key("a")).await.1.attempt, u32::MAX, "no attempt comes after this number");
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().attempt, u32::MAX, "on the server either");
}

#[tokio::test]
async fn a_record_past_its_end_is_absent_though_the_server_still_has_it() {
    let redis = Redis::start();
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let (old, fence) = (Owner::from_bytes([7; 16]), idem_runtime::Fence::new(5));
    for state in [b'I', b'R'] {
        let () = server.set(name("a"), packed(state, old, 5, 1)).unwrap();
        assert_eq!(store.renew(&key("a"), &renewal(old, fence)).await.unwrap(), RenewAnswer::Lost);
        let step = recording(old, fence, 0, "a step", &[7]);
        assert_eq!(store.record_step(&key("a"), &step).await.unwrap(), RecordStepAnswer::Lost);
        let late = store.complete(&key("a"), &completion(old, fence, b"r")).await.unwrap();
        assert_eq!(late, CompleteAnswer::Lost);
        let release = Release::new(old, fence, ReleaseCause::Failed);
        assert_eq!(store.release(&key("a"), &release).await.unwrap(), ReleaseAnswer::Lost);
        let resolved = store.resolve(&key("a"), &Resolution::Release).await.unwrap();
        assert_eq!(resolved, ResolveAnswer::Absent);
        let (_, grant) = granted(&store, &key("a")).await;
        assert_eq!((grant.attempt, grant.recovered), (1, false), "it is a new generation");
        let record = store.get(&key("a")).await.unwrap().unwrap();
        assert_eq!((record.attempt, record.recovered), (1, false), "on the server too");
        assert!(record.created_at.as_micros() > 1, "it does not begin when the old one did");
    }
}

#[tokio::test]
async fn a_renewal_and_a_release_write_the_head_of_a_record_and_not_its_steps() {
    let redis = Redis::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--auto-aof-rewrite-percentage",
        "0",
    ]);
    let (store, mut server) = (connect(&redis).await, client(&redis.url()));
    let written = |server: &mut Connection| {
        let info: String = cmd("INFO").arg("persistence").query(server).unwrap();
        let size = info.lines().find_map(|line| line.strip_prefix("aof_current_size:")).unwrap();
        size.parse::<u64>().unwrap()
    };
    for (number, cause) in
        [ReleaseCause::Failed, ReleaseCause::Unused, ReleaseCause::Doubtful].into_iter().enumerate()
    {
        let key = key(&number.to_string());
        let (owner, grant) = granted(&store, &key).await;
        for position in 0..3 {
            let step = recording(owner, grant.fence, position, "a step", &vec![7; 1 << 20]);
            record_step(&store, &key, &step).await;
        }
        let before = written(&mut server);
        let steps = store.get(&key).await.unwrap().unwrap().steps;
        renew(&store, &key, owner, grant.fence).await;
        store.release(&key, &Release::new(owner, grant.fence, cause)).await.unwrap();
        let bytes = written(&mut server) - before;
        assert!(bytes < 4_096, "{bytes} bytes were written");
        let released = store.get(&key).await.unwrap().unwrap();
        assert_ne!(released.state, State::InFlight);
        assert_eq!(released.steps, steps);
        // The time when the server deletes the record; negative for never.
        let expiry: i64 = cmd("PEXPIRETIME").arg(name(&number.to_string())).query(&mut server).unwrap();
        assert_eq!(expiry < 0, released.expires_at.is_none());
    }
}
