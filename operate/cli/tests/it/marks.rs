//! The marks of a store show its service's layers before there is any result: the command is refused without the keys, or with others.

use idem::protocol::State;
use idem::{DynStore, KeyRing, OnCrash, Operation, SqliteStore, Store, StoreExt as _};
use serde_json::{Value, json};

use crate::idem_command::*;

const KEY: [u8; 32] = [7; 32];
const SECRET_OF_KEYS: [u8; 32] = [9; 32];

fn hex(bytes: [u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn ring(number: u32, key: [u8; 32]) -> String {
    format!("{number} {}", hex(key))
}

async fn called<S: Store>(store: &S) -> Result<Value, idem::Error> {
    let operation = Operation::new(SCOPE).on_crash(OnCrash::InDoubt);
    operation.run(store, "order-1", || async { Ok(json!("the body ran")) }).await
}

async fn story(bare: &DynStore, url: &str) {
    let store = bare.clone().encrypted(KeyRing::new(1, &KEY)).digest_keys(&SECRET_OF_KEYS);
    bring(&store, &key("order-1"), State::InDoubt).await;
    let stored = store.stored_name(&key("order-1")).unwrap();
    let stored = stored.key().as_str();
    let plain = Idem::new(url);
    let with = |ring: &str, secret: [u8; 32]| {
        Idem::new(url)
            .with_environment("IDEM_KEY_RING", ring)
            .with_environment("IDEM_KEY_SECRET", &hex(secret))
    };
    // Only the mark shows the encryption: no operation has a result.
    let words = ["resolve", stored, "--scope", SCOPE, "--completed", "1", "--yes"];
    for more in [&[][..], &["--unencrypted"]] {
        let refused = plain.run(&[&words[..], more].concat()).ended(5);
        assert!(refused.err.contains("--key-ring-file"), "{refused:?}");
    }
    // The command does not record under a name that the service would not look for.
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
        for words in [
            &["record", "order-2", "--scope", SCOPE, "--completed", "1", "--yes", "--encrypted"][..],
            &["resolve", stored, "--scope", SCOPE, "--completed", "1", "--yes", "--encrypted"],
            &["forget", stored, "--scope", SCOPE, "--yes"],
        ] {
            let refused = idem.run(words).ended(5);
            assert!(refused.err.contains(says), "{refused:?}");
            assert!(!refused.err.contains(&hex(KEY)) && !refused.err.contains(&hex(SECRET_OF_KEYS)));
        }
    }
    assert_eq!(state_of(&store, &key("order-1")).await, Some(State::InDoubt));
    assert_eq!(state_of(&store, &key("order-2")).await, None);
    // Lists, counts and exports leave the marks out.
    assert_eq!(plain.run(&["--json", "list"]).ended(0).json().len(), 1);
    assert_eq!(plain.run(&["--json", "list", "--full"]).ended(0).json().len(), 1);
    assert_eq!(plain.run(&["--json", "stats"]).ended(0).one()["all"]["completed"], 0);
    plain.run(&["purge"]).ended(0);
    assert!(plain.run(&["doctor", "--read-only"]).out.contains("encrypted, and keys are digests"));
    // With the service's keys it works.
    let right = with(&ring(1, KEY), SECRET_OF_KEYS);
    right.run(&["resolve", "order-1", "--scope", SCOPE, "--completed", "\"by hand\"", "--yes"]).ended(0);
    assert_eq!(called(&store).await.unwrap(), json!("by hand"));
    // A process with other keys is refused, too, and its body does not run.
    let other = bare.clone().encrypted(KeyRing::new(1, &[8; 32])).digest_keys(&SECRET_OF_KEYS);
    assert!(matches!(called(&other).await, Err(idem::Error::Store { .. })));
    let other = bare.clone().encrypted(KeyRing::new(1, &KEY)).digest_keys(&[8; 32]);
    assert!(matches!(called(&other).await, Err(idem::Error::Store { .. })));
    // If the keys are lost, a person can delete the marks.
    for name in ["encrypted", "encrypted/1", "digested", "digested/0"] {
        plain.run(&["forget", name, "--scope", "idem.layers", "--yes"]).ended(0);
    }
    let other = bare.clone().encrypted(KeyRing::new(1, &[8; 32])).digest_keys(&[8; 32]);
    assert_eq!(called(&other).await.unwrap(), json!("the body ran"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_says_how_it_is_wrapped_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idem.db");
    let store = DynStore::new(SqliteStore::open(&file).unwrap());
    story(&store, &format!("sqlite:{}", file.display())).await;
}

#[tokio::test]
async fn a_key_that_looks_like_a_digest_is_a_key() {
    let shop = Shop::new();
    let store = shop.store.clone().digest_keys(&SECRET_OF_KEYS);
    called(&store).await.unwrap();
    let idem = Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_SECRET", &hex(SECRET_OF_KEYS));
    let text = "ab".repeat(32);
    idem.run(&["record", &text, "--scope", SCOPE, "--completed", "\"by hand\"", "--yes"]).ended(0);
    let body = || async { Ok::<_, idem::Error>(json!("the body ran")) };
    assert_eq!(Operation::new(SCOPE).run(&store, &text, body).await.unwrap(), json!("by hand"));
    // By the key, and by the name that a list shows.
    let stored = store.stored_name(&key(&text)).unwrap();
    for name in [&*text, stored.key().as_str()] {
        for more in [&[][..], &["--scope", SCOPE]] {
            let shown = idem.run(&[&["--json", "show", name], more].concat()).ended(0).one();
            assert_eq!(shown["digest"], stored.digest().to_string(), "{name}");
        }
    }
    // Without the secret such a key cannot be recorded.
    let plain = Idem::new(&*shop.idem.store);
    plain.run(&["record", &"cd".repeat(32), "--scope", SCOPE, "--completed", "1", "--yes"]).ended(5);
}

#[tokio::test]
async fn digests_within_the_encryption_are_not_completed_by_a_command_that_cannot() {
    let shop = Shop::new();
    let store = shop.store.clone().digest_keys(&SECRET_OF_KEYS).encrypted(KeyRing::new(1, &KEY));
    bring(&store, &key("order-1"), State::InDoubt).await;
    let idem = Idem::new(&*shop.idem.store)
        .with_environment("IDEM_KEY_RING", &ring(1, KEY))
        .with_environment("IDEM_KEY_SECRET", &hex(SECRET_OF_KEYS));
    let words = ["resolve", "order-1", "--scope", SCOPE, "--yes"];
    let refused = idem.run(&[&words[..], &["--completed", "1"]].concat()).ended(5);
    assert!(refused.err.contains("within the encryption"), "{refused:?}");
    idem.run(&[&words[..], &["--release"]].concat()).ended(0);
    assert_eq!(called(&store).await.unwrap(), json!("the body ran"));
}
