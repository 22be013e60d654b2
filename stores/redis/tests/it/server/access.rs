//! What `RedisStore` checks and reports when it connects: passwords, settings, rights, weak guarantees.

use std::time::Duration;

use idem_redis::RedisStore;
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::Redis;
use redis::cmd;

use crate::events::Events;
use crate::support::*;

#[tokio::test]
async fn a_password_that_is_wrong_is_a_matter_of_configuration_and_is_not_repeated() {
    let redis = Redis::with(&["--requirepass", "the-right-secret"]);
    let host = redis.url().replace("redis://", "");
    for login in ["", ":the-wrong-secret@"] {
        let builder = RedisStore::builder(format!("redis://{login}{host}")).operation_timeout(PATIENCE);
        let error = builder.connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
        assert!(!format!("{error:?}{error}").contains("secret"), "{error:?}");
    }
    let store = RedisStore::connect(format!("redis://:the-right-secret@{host}")).await.unwrap();
    granted(&store, &key("a")).await;
    assert!(!format!("{store:?}").contains("secret"));
}

#[tokio::test]
async fn settings_out_of_their_range_are_refused() {
    let builder = || RedisStore::builder("redis://127.0.0.1:1/");
    for wrong in [
        builder().prefix("{idem}"),
        builder().operation_timeout(Duration::ZERO),
        builder().operation_timeout(Duration::MAX),
        builder().max_result_bytes(0),
        builder().max_result_bytes(usize::MAX),
        builder().wait_replicas(0, Duration::from_millis(100)),
        builder().wait_replicas(1, Duration::ZERO),
        builder().wait_replicas(1, Duration::from_secs(3)),
        RedisStore::builder("http://127.0.0.1/"),
        RedisStore::builder("not a url"),
    ] {
        let error = wrong.connect().await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
    }
}

#[tokio::test]
async fn what_weakens_the_guarantee_is_said_at_connect_and_no_more_than_that() {
    for (arguments, events) in [
        (&["--appendonly", "yes"][..], &[][..]),
        (&["--save", "3600 1"], &["not_persistent"]),
        (&[], &["not_persistent"]),
        (&["--appendonly", "yes", "--maxmemory-policy", "allkeys-lru"], &["may_evict"]),
    ] {
        let redis = Redis::with(arguments);
        let (log, _guard) = Events::start();
        connect(&redis).await;
        let text = log.text();
        for event in ["not_persistent", "may_evict", "unchecked"] {
            assert_eq!(text.contains(event), events.contains(&event), "{arguments:?}: {text}");
        }
    }
}

#[tokio::test]
async fn a_user_who_may_not_look_at_the_server_may_use_it() {
    let redis = Redis::start();
    let mut server = client(&redis.url());
    let () = cmd("ACL")
        .arg(&["SETUSER", "shop", "on", ">secret", "~idem:*", "-@all"])
        .arg(&["+evalsha", "+eval", "+get", "+set", "+append", "+del", "+time", "+ping"])
        .arg(&["+getrange", "+setrange", "+strlen", "+persist", "+pexpireat"])
        .query(&mut server)
        .unwrap();
    let url = redis.url().replace("redis://", "redis://shop:secret@");
    let (log, guard) = Events::start();
    let store = RedisStore::connect(&url).await.unwrap();
    drop(guard);
    assert!(log.text().contains("unchecked"), "{}", log.text());
    complete(&store, &key("a"), b"r").await;
    assert_eq!(replayed(&store, &key("a")).await, b"r");
    assert!(store.forget(&key("a")).await.unwrap());
    let (owner, grant) = granted(&store, &key("a")).await;
    for (position, bytes) in [(0, 10), (1, 5_000), (2, 10)] {
        let step = recording(owner, grant.fence, position, &position.to_string(), &vec![7; bytes]);
        record_step(&store, &key("a"), &step).await;
        renew(&store, &key("a"), owner, grant.fence).await;
    }
    release(&store, &key("a"), owner, grant.fence).await;

    let elsewhere = RedisStore::builder(&url).prefix("other:").connect().await.unwrap();
    let error = elsewhere.claim(&key("a"), &claim_request()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration, "{error:?}");
    assert!(!format!("{error:?}").contains("test|a"), "{error:?}");
}
