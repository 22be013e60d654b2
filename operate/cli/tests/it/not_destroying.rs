//! The command writes nothing that the service could not read, reports nothing false, and acts only on the record that it showed.

use idem::protocol::{ClaimAnswer, RecordStep, RecordedStep, Release, ReleaseCause, State, StoredResult};
use idem::{KeyRing, OnCrash, Operation, Store, StoreExt as _};
use serde_json::{Value, json};

use crate::idem_command::*;

fn operation() -> Operation {
    Operation::new(SCOPE).on_crash(OnCrash::InDoubt)
}

async fn called<S: Store>(store: &S, key: &str) -> Result<Value, idem::Error> {
    operation().run(store, key, || async { Ok(json!("the body ran")) }).await
}

#[tokio::test]
async fn the_first_key_of_an_encrypted_store_is_not_completed_in_the_clear() {
    let shop = Shop::new();
    let sealed = shop.store.clone().encrypted(KeyRing::new(1, &[7; 32]));
    bring(&shop.store, &key("order-1"), State::InDoubt).await;
    // That another service of the store does not encrypt shows nothing about this one.
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
    // Now the operation has a result, which is encrypted: `--unencrypted` does not override that.
    bring(&shop.store, &key("order-3"), State::InDoubt).await;
    shop.idem.run(&["resolve", "order-3", "--yes", "--completed", "1", "--unencrypted"]).ended(5);
}

#[tokio::test]
async fn a_step_in_the_clear_shows_that_results_are_not_encrypted() {
    let shop = Shop::new();
    let (name, request) = (key("order-1"), claim());
    let ClaimAnswer::Granted(grant) = shop.store.claim(&name, &request).await.unwrap() else {
        panic!("not granted")
    };
    let step = RecordedStep::new("charge".to_owned(), None, StoredResult::Value("7".into()));
    let step = RecordStep::new(request.owner, grant.fence, 0, step);
    shop.store.record_step(&name, &step).await.unwrap();
    let gone = Release::new(request.owner, grant.fence, ReleaseCause::Abandoned);
    shop.store.release(&name, &gone).await.unwrap();
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
    // By its stored name, a digest, the record is found.
    let listed = shop.idem.run(&["--json", "list", "--keys"]).one();
    shop.idem.run(&["show", listed["key"].as_str().unwrap(), "--scope", SCOPE]).ended(0);
    // Without digests there is no such record: in the whole store, or in the operation where the store has no marks.
    for has_other in [false, true] {
        let shop = Shop::new();
        if has_other {
            called(&shop.store.clone().digest_keys(&[7; 32]).without_mark(), "order-1").await.unwrap();
        }
        bring(&shop.store, &key_of("plain", "a"), State::Completed).await;
        shop.idem.run(&["show", "b", "--scope", "plain"]).ended(1);
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
