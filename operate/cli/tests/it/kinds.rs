//! Each kind of record: it falls in doubt, is found, shown and resolved, and the next call replays it.

use std::path::Path;

use http::StatusCode;
use idem::http::StoredResponse;
use idem::protocol::{
    Claim, ClaimAnswer, Complete, RecordStep, RecordedStep, Release, ReleaseCause, State, StoredResult,
    Verdict,
};
use idem::{DynStore, KeyRing, OnCrash, Operation, SqliteStore, Store, StoreExt as _};
use serde_json::json;

use crate::idem_command::*;

const KEY: [u8; 32] = [7; 32];
const SECRET_OF_KEYS: [u8; 32] = [9; 32];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    Encrypted,
    Digested,
    Compressed,
    Response,
    Steps,
    /// Digested, compressed and encrypted.
    All,
}

const KINDS: [Kind; 7] =
    [Kind::Plain, Kind::Encrypted, Kind::Digested, Kind::Compressed, Kind::Response, Kind::Steps, Kind::All];

fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The store as a service of this kind has it, and the command that an operator runs.
fn service(kind: Kind, bare: &DynStore, url: &str, folder: &Path) -> (DynStore, Idem) {
    let ring = || KeyRing::new(1, &KEY);
    let store = bare.clone();
    let store = match kind {
        Kind::Encrypted => DynStore::new(store.encrypted(ring())),
        Kind::Digested => DynStore::new(store.digest_keys(&SECRET_OF_KEYS)),
        Kind::Compressed => DynStore::new(store.compressed()),
        Kind::All => DynStore::new(store.encrypted(ring()).compressed().digest_keys(&SECRET_OF_KEYS)),
        Kind::Plain | Kind::Response | Kind::Steps => store,
    };
    let mut idem = Idem::new(url);
    if matches!(kind, Kind::Encrypted | Kind::All) {
        let file = folder.join("ring");
        std::fs::write(&file, format!("# of the shop\n1 {}\n", hex(&KEY))).unwrap();
        idem = idem.with_environment("IDEM_KEY_RING_FILE", file.to_str().unwrap());
    }
    if matches!(kind, Kind::Digested | Kind::All) {
        idem = idem.with_environment("IDEM_KEY_SECRET", &hex(&SECRET_OF_KEYS));
    }
    (store, idem)
}

/// Makes a key whose call is completed, and one whose worker died, after a step where the kind has steps.
async fn fill(kind: Kind, store: &DynStore, scope: &str) {
    let response = StoredResponse::new(StatusCode::CREATED, "\"paid\"".into()).to_bytes();
    let value = if kind == Kind::Response { response } else { format!("\"{}\"", "paid ".repeat(200)).into() };
    for (name, is_done) in [("order-0", true), ("order-1", false)] {
        let (name, request) = (key_of(scope, name), claim());
        let ClaimAnswer::Granted(grant) = store.claim(&name, &request).await.unwrap() else {
            panic!("{kind:?}: not granted")
        };
        let (owner, fence) = (request.owner, grant.fence);
        if is_done {
            let result = StoredResult::Value(value.clone());
            let done = Complete::new(owner, fence, Verdict::Completed, result, request.ttl);
            store.complete(&name, &done).await.unwrap();
            continue;
        }
        if matches!(kind, Kind::Steps | Kind::All) {
            let step = RecordedStep::new("reserve".into(), None, StoredResult::Value("7".into()));
            store.record_step(&name, &RecordStep::new(owner, fence, 0, step)).await.unwrap();
        }
        store.release(&name, &Release::new(owner, fence, ReleaseCause::Abandoned)).await.unwrap();
    }
}

async fn table(bare: &DynStore, url: &str) {
    let folder = tempfile::tempdir().unwrap();
    for kind in KINDS {
        let scope = format!("shop.{kind:?}");
        let (store, idem) = service(kind, bare, url, folder.path());
        fill(kind, &store, &scope).await;
        let digest = key_of(&scope, "order-1").digest().to_string();
        let listed = idem.run(&["--json", "list", "--state", "in-doubt", "--scope", &scope]).ended(0).one();
        assert_eq!(listed["state"], "in_doubt", "{kind:?}");
        // By the digest of a log line, and by the key.
        let shown = idem.run(&["--json", "show", "--digest", &digest]).ended(0).one();
        assert_eq!(shown["state"], "in_doubt", "{kind:?}");
        if matches!(kind, Kind::Steps | Kind::All) {
            assert_eq!(shown["steps"][0]["name"], "reserve", "{kind:?}");
        }
        let shown = idem.run(&["show", "order-0", "--scope", &scope, "--result"]).ended(0).out;
        assert!(shown.contains("paid"), "{kind:?}: {shown}");
        assert_eq!(shown.contains("HTTP 201"), kind == Kind::Response, "{kind:?}: {shown}");
        let words: &[&str] = match kind {
            Kind::Response => &["--http", "202", "--header", "location: /7", "--body", "by hand"],
            _ => &["--completed", "\"by hand\""],
        };
        let mut all = vec!["resolve", "--digest", &digest, "--yes", "--reason", "ticket 7"];
        all.extend(words);
        idem.run(&all).ended(0);
        if kind == Kind::Response {
            let request = Claim::new(idem::protocol::Owner::random(), claim().lease, claim().ttl);
            let ClaimAnswer::Replay(replay) =
                store.claim(&key_of(&scope, "order-1"), &request).await.unwrap()
            else {
                panic!("{kind:?}: no replay")
            };
            let StoredResult::Value(bytes) = replay.result else { panic!("{kind:?}: no value") };
            let response = StoredResponse::from_bytes(&bytes).unwrap();
            assert_eq!((response.status.as_u16(), &*response.body), (202, &b"by hand"[..]));
        } else {
            let operation = Operation::new(scope.clone()).on_crash(OnCrash::InDoubt);
            let body = || async { Ok::<_, idem::Error>(json!("the body ran")) };
            let given = operation.run(&store, "order-1", body).await.unwrap();
            assert_eq!(given, json!("by hand"), "{kind:?}");
        }
        let entry = idem.run(&["--json", "audit", "--scope", &scope]).ended(0).one();
        assert_eq!(
            (&entry["action"], &entry["reason"]),
            (&json!("completed"), &json!("ticket 7")),
            "{kind:?}"
        );
        assert_eq!((&entry["outcome"], &entry["was"]), (&json!("done"), &json!("in_doubt")), "{kind:?}");
        idem.run(&["forget", "order-0", "--scope", &scope, "--yes"]).ended(0);
        assert_eq!(state_of(&store, &key_of(&scope, "order-0")).await, None, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_record_is_settled_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("idem.db");
    let store = DynStore::new(SqliteStore::open(&file).unwrap());
    table(&store, &format!("sqlite:{}", file.display())).await;
}

#[tokio::test]
async fn a_wrong_or_missing_key_is_refused_and_nothing_is_written() {
    let shop = Shop::new();
    let ring = shop.folder().join("ring");
    let sealed = DynStore::new(shop.store.clone().encrypted(KeyRing::new(1, &KEY)));
    fill(Kind::Encrypted, &sealed, SCOPE).await;
    let words = ["resolve", "order-1", "--completed", "1", "--yes"];
    let resolve = |text: String, more: &[&str]| {
        std::fs::write(&ring, text).unwrap();
        let idem =
            Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING_FILE", ring.to_str().unwrap());
        idem.run(&[&words[..], more].concat())
    };
    assert!(shop.idem.run(&words).ended(5).err.contains("--key-ring-file"));
    // A different key under the same number, and an unknown number.
    for line in [format!("1 {}", hex(&[8; 32])), format!("2 {}", hex(&KEY))] {
        let refused = resolve(line, &["--encrypted"]).ended(5);
        assert!(refused.err.contains("key") && !refused.err.contains(&hex(&KEY)), "{refused:?}");
    }
    for text in ["", "1", "x y", "1 00ff", &format!("1 {}\n1 {}", hex(&KEY), hex(&KEY))] {
        resolve(text.to_owned(), &[]).ended(2);
    }
    assert_eq!(state_of(&sealed, &key("order-1")).await, Some(State::InDoubt));
    // An encrypted result is not recorded where the operation's results are not encrypted.
    fill(Kind::Plain, &DynStore::new(shop.store.clone()), "another").await;
    let words = ["resolve", "order-1", "--scope", "another", "--completed", "1", "--yes"];
    let idem = Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_RING", &format!("1 {}", hex(&KEY)));
    let refused = idem.run(&words).ended(5);
    assert!(refused.err.contains("not encrypted"), "{refused:?}");
    resolve(format!("1 {}", hex(&KEY)), &["--scope", SCOPE]).ended(0);
}

#[tokio::test]
async fn a_wrong_secret_of_key_digests_is_refused() {
    let shop = Shop::new();
    let digested = DynStore::new(shop.store.clone().digest_keys(&SECRET_OF_KEYS));
    fill(Kind::Digested, &digested, SCOPE).await;
    let wrong = Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_SECRET", &hex(&[1; 32]));
    let refused = wrong.run(&["show", "order-1", "--scope", SCOPE]).ended(5);
    assert!(refused.err.contains("secret"), "{refused:?}");
    wrong.run(&["show", "--digest", &key("order-1").digest().to_string()]).ended(5);
    // Without a mark in the store, the command does not find the record.
    let shop = Shop::new();
    fill(
        Kind::Digested,
        &DynStore::new(shop.store.clone().digest_keys(&SECRET_OF_KEYS).without_mark()),
        SCOPE,
    )
    .await;
    let wrong = Idem::new(&*shop.idem.store).with_environment("IDEM_KEY_SECRET", &hex(&[1; 32]));
    let refused = wrong.run(&["show", "order-1", "--scope", SCOPE]).ended(1);
    assert!(refused.err.contains("secret"), "{refused:?}");
}
