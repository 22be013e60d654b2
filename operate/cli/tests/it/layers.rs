//! A service with layers around its store. The command reads and writes as the service does. It writes
//! nothing that the service could not read. Without the service's keys, it says nothing false about the
//! store.

use idem::protocol::{ClaimAnswer, RecordStep, RecordedStep, Release, ReleaseCause, State, StoredResult};
use idem::{KeyRing, OnCrash, Operation, Store, StoreExt as _};
use serde_json::{Value, json};

use crate::idem_command::*;

const KEY: [u8; 32] = [7; 32];
const SECRET_OF_KEYS: [u8; 32] = [9; 32];

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Puts `order-1` in doubt, with this value of its step `reserve`.
async fn in_doubt_with_a_step<S: Store>(store: &S, value: &str) {
    let (name, request) = (key("order-1"), claim());
    let ClaimAnswer::Granted(grant) = store.claim(&name, &request).await.unwrap() else { panic!() };
    let step = RecordedStep::new("reserve".into(), None, StoredResult::Value(value.to_owned().into()));
    store.record_step(&name, &RecordStep::new(request.owner, grant.fence, 0, step)).await.unwrap();
    let gone = Release::new(request.owner, grant.fence, ReleaseCause::Abandoned);
    store.release(&name, &gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_a_service_with_all_layers_and_steps_is_found_shown_and_settled() {
    let shop = Shop::new();
    let store = shop.store.clone().encrypted(KeyRing::new(1, &KEY)).compressed().digest_keys(&SECRET_OF_KEYS);
    let ring = shop.folder().join("ring");
    std::fs::write(&ring, format!("# of the shop\n1 {}\n", hex(&KEY))).unwrap();
    let idem = Idem::new(&*shop.idem.store)
        .with_environment("IDEM_KEY_RING_FILE", ring.to_str().unwrap())
        .with_environment("IDEM_KEY_SECRET", &hex(&SECRET_OF_KEYS));
    let operation = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    let paid = || async { Ok::<_, idem::Error>(json!("paid ".repeat(200))) };
    operation.run(&store, "order-0", paid).await.unwrap();
    in_doubt_with_a_step(&store, &format!("\"{SECRET}\"")).await;

    // Finds the record by the digest of a log line.
    let digest = key("order-1").digest().to_string();
    let shown = idem.run(&["--json", "show", "--digest", &digest, "--result"]).ended(0);
    let (state, step) = (&shown.one()["state"], &shown.one()["steps"][0]);
    assert_eq!((state, &step["name"]), (&json!("in_doubt"), &json!("reserve")));
    assert!(step["result"]["bytes"].is_u64() && !shown.out.contains(SECRET), "{shown:?}");
    let shown = idem.run(&["show", "order-0", "--scope", SCOPE, "--result"]).ended(0).out;
    assert!(shown.contains("paid paid"), "{shown}");
    let words = ["resolve", "--digest", &digest, "--yes", "--reason", "ticket 7", "--completed"];
    idem.run(&[&words[..], &["\"by hand\""]].concat()).ended(0);
    assert_eq!(operation.run(&store, "order-1", paid).await.unwrap(), json!("by hand"));
    let entry = idem.run(&["--json", "audit", "--scope", SCOPE]).ended(0).one();
    assert_eq!((&entry["action"], &entry["reason"]), (&json!("completed"), &json!("ticket 7")));
    assert_eq!((&entry["outcome"], &entry["was"]), (&json!("done"), &json!("in_doubt")));
    idem.run(&["forget", "order-0", "--scope", SCOPE, "--yes"]).ended(0);
    assert_eq!(state_of(&store, &key("order-0")).await, None);
}

#[tokio::test]
async fn a_key_ring_that_cannot_be_read_or_that_the_service_does_not_use_writes_nothing() {
    let shop = Shop::new();
    let idem = |text: &str| Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING", text);
    bring(&shop.store, &key("order-1"), State::Completed).await;
    bring(&shop.store, &key("order-2"), State::InDoubt).await;
    let words = ["resolve", "order-2", "--completed", "1", "--yes"];
    for text in ["", "1", "x y", "1 00ff", &format!("1 {}\n1 {}", hex(&KEY), hex(&KEY))] {
        idem(text).run(&words).ended(2);
    }
    // An encrypted result is not recorded if the operation's other results are not encrypted.
    let refused = idem(&ring(1, KEY)).run(&words).ended(5);
    assert!(refused.err.contains("not encrypted"), "{refused:?}");
    assert_eq!(state_of(&shop.store, &key("order-2")).await, Some(State::InDoubt));
}

fn ring(number: u32, key: [u8; 32]) -> String {
    format!("{number} {}", hex(&key))
}

async fn called<S: Store>(store: &S, key: &str) -> Result<Value, idem::Error> {
    let operation = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    operation.run(store, key, || async { Ok(json!("the body ran")) }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_says_how_it_is_wrapped() {
    let shop = Shop::new();
    let (bare, url) = (&shop.store, &*shop.idem.store);
    let store = bare.clone().encrypted(KeyRing::new(1, &KEY)).digest_keys(&SECRET_OF_KEYS);
    bring(&store, &key("order-1"), State::InDoubt).await;
    let stored = store.stored_name(&key("order-1")).unwrap();
    let stored = stored.key().as_str();
    let plain = Idem::new(url);
    let with = |ring: &str, secret: [u8; 32]| {
        Idem::new(url)
            .with_environment("IDEM_KEY_RING", ring)
            .with_environment("IDEM_KEY_SECRET", &hex(&secret))
    };
    // No operation has a result, so only the store's mark (a record in the scope `idem.layers`) shows the
    // encryption.
    let words = ["resolve", stored, "--scope", SCOPE, "--completed", "1", "--yes"];
    for more in [&[][..], &["--unencrypted"]] {
        let refused = plain.run(&[&words[..], more].concat()).ended(5);
        assert!(refused.err.contains("--key-ring-file"), "{refused:?}");
    }
    // The command does not record a result under a name that the service would not look for.
    let words = ["record", "order-2", "--scope", SCOPE, "--completed", "1", "--yes", "--unencrypted"];
    assert!(plain.run(&words).ended(5).err.contains("--key-secret-file"));
    let refused = plain.run(&["show", "order-1", "--scope", SCOPE]).ended(5);
    assert!(refused.err.contains("--key-secret-file"), "{refused:?}");
    // With other keys every command is refused.
    let wrong = [
        (with(&ring(1, [8; 32]), SECRET_OF_KEYS), "encryption keys"),
        (with(&ring(2, KEY), SECRET_OF_KEYS), "encryption keys"),
        (with(&ring(1, KEY), [8; 32]), "secret"),
    ];
    for (idem, says) in &wrong {
        let refused = idem.run(&["forget", stored, "--scope", SCOPE, "--yes"]).ended(5);
        assert!(refused.err.contains(says), "{refused:?}");
        assert!(!refused.err.contains(&hex(&KEY)) && !refused.err.contains(&hex(&SECRET_OF_KEYS)));
    }
    assert_eq!(state_of(&store, &key("order-1")).await, Some(State::InDoubt));
    assert_eq!(state_of(&store, &key("order-2")).await, None);
    // Lists, counts and exports leave the marks out.
    assert_eq!(plain.run(&["--json", "list"]).ended(0).json().len(), 1);
    assert_eq!(plain.run(&["--json", "list", "--full"]).ended(0).json().len(), 1);
    assert_eq!(plain.run(&["--json", "stats"]).ended(0).one()["all"]["completed"], 0);
    plain.run(&["purge"]).ended(0);
    assert!(plain.run(&["doctor", "--read-only"]).out.contains("encrypted, and keys are digests"));
    // With the service's keys, the command works.
    let right = with(&ring(1, KEY), SECRET_OF_KEYS);
    right.run(&["resolve", "order-1", "--scope", SCOPE, "--completed", "\"by hand\"", "--yes"]).ended(0);
    assert_eq!(called(&store, "order-1").await.unwrap(), json!("by hand"));
    // If the keys are lost, a person can delete the marks.
    for name in ["encrypted", "encrypted/1", "digested", "digested/0"] {
        plain.run(&["forget", name, "--scope", "idem.layers", "--yes"]).ended(0);
    }
    let other = bare.clone().encrypted(KeyRing::new(1, &[8; 32])).digest_keys(&[8; 32]);
    assert_eq!(called(&other, "order-1").await.unwrap(), json!("the body ran"));
}

#[tokio::test]
async fn digests_within_the_encryption_are_not_completed_by_a_command_that_cannot() {
    let shop = Shop::new();
    let store = shop.store.clone().digest_keys(&SECRET_OF_KEYS).encrypted(KeyRing::new(1, &KEY));
    bring(&store, &key("order-1"), State::InDoubt).await;
    let idem = Idem::new(&*shop.idem.store)
        .with_environment("IDEM_KEY_RING", &ring(1, KEY))
        .with_environment("IDEM_KEY_SECRET", &hex(&SECRET_OF_KEYS));
    let words = ["resolve", "order-1", "--scope", SCOPE, "--yes"];
    let refused = idem.run(&[&words[..], &["--completed", "1"]].concat()).ended(5);
    assert!(refused.err.contains("within the encryption"), "{refused:?}");
    idem.run(&[&words[..], &["--release"]].concat()).ended(0);
    assert_eq!(called(&store, "order-1").await.unwrap(), json!("the body ran"));
}

#[tokio::test]
async fn the_first_key_of_an_encrypted_store_is_not_completed_in_the_clear() {
    let shop = Shop::new();
    let sealed = shop.store.clone().encrypted(KeyRing::new(1, &[7; 32]));
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    // Another service of the store does not encrypt, but that shows nothing about this service.
    bring(&shop.store, &key_of("another", "order-2"), State::Completed).await;
    for word in [&["--completed", "\"x\""], &["--failed", "\"x\""], &["--http", "201"]] {
        let refused = shop.idem.run(&["resolve", "order-1", "--yes", word[0], word[1]]).ended(3);
        assert!(
            refused.err.contains("--unencrypted") && refused.err.contains("Nothing was done"),
            "{refused:?}"
        );
    }
    assert!(matches!(called(&sealed, "order-1").await, Err(idem::Error::InDoubt { .. })));
    shop.idem.run(&["resolve", "order-1", "--yes", "--release", "--unencrypted"]).ended(2);
    shop.idem.run(&["resolve", "order-1", "--yes", "--release"]).ended(0);
    assert_eq!(called(&sealed, "order-1").await.unwrap(), json!("the body ran"));
    // Now the operation has an encrypted result, and `--unencrypted` does not override that.
    bring(&shop.store, &key("order-3"), State::InDoubt).await;
    shop.idem.run(&["resolve", "order-3", "--yes", "--completed", "1", "--unencrypted"]).ended(5);
}

#[tokio::test]
async fn a_step_in_the_clear_shows_that_results_are_not_encrypted() {
    let shop = Shop::new();
    in_doubt_with_a_step(&shop.store, "7").await;
    shop.idem.run(&["resolve", "order-1", "--yes", "--completed", "7"]).ended(0);
    assert_eq!(called(&shop.store, "order-1").await.unwrap(), json!(7));
}

#[tokio::test]
async fn a_store_that_keeps_digests_of_keys_is_not_said_to_have_no_record() {
    let shop = Shop::new();
    let digested = shop.store.clone().digest_keys(&[7; 32]);
    called(&digested, "order-1").await.unwrap();
    let digest = key("order-1").digest().to_string();
    for words in [
        &["show", "order-1", "--scope", SCOPE][..],
        &["show", "order-1"],
        &["show", "--digest", &digest],
        &["forget", "order-1", "--scope", SCOPE, "--yes"],
        &["resolve", "order-1", "--scope", SCOPE, "--release", "--yes"],
    ] {
        let refused = shop.idem.run(words).ended(5);
        assert!(refused.err.contains("digests"), "{words:?} {refused:?}");
    }
    // The command finds the record by its stored name, which is a digest.
    let listed = shop.idem.run(&["--json", "list", "--keys"]).one();
    shop.idem.run(&["show", listed["key"].as_str().unwrap(), "--scope", SCOPE]).ended(0);
    // The keys of the operation `plain` are not digests, so the command reports `b` as absent. It does so
    // even if another operation has digests and the store has no marks.
    for has_other in [false, true] {
        let shop = Shop::new();
        if has_other {
            called(&shop.store.clone().digest_keys(&[7; 32]).without_mark(), "order-1").await.unwrap();
        }
        bring(&shop.store, &key_of("plain", "a"), State::Completed).await;
        shop.idem.run(&["show", "b", "--scope", "plain"]).ended(1);
        if has_other {
            // The error mentions the secret, because the command finds no record under a wrong secret.
            let wrong = Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_SECRET", &hex(&[1; 32]));
            let refused = wrong.run(&["show", "order-1", "--scope", SCOPE]).ended(1);
            assert!(refused.err.contains("secret"), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn an_operation_that_encrypts_is_recorded_beside_one_that_does_not() {
    let shop = Shop::new();
    bring(&shop.store, &key_of("plain", "a"), State::Completed).await;
    let idem =
        Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING", &format!("1 {}", "07".repeat(32)));
    let words = ["record", "order-1", "--scope", SCOPE, "--completed", "7", "--yes"];
    idem.run(&words).ended(3);
    idem.run(&[&words[..], &["--encrypted"]].concat()).ended(0);
    let sealed = shop.store.clone().encrypted(KeyRing::new(1, &[7; 32]));
    assert_eq!(called(&sealed, "order-1").await.unwrap(), json!(7));
}
