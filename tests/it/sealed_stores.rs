//! Tests of encryption, digests, compression and the cache over real stores: what the store holds, and that each is a
//! correct store.

use crate::sealed_support;

use std::time::Duration;

use idem::StoreExt as _;
use idem::protocol::{RecordStep, StoredResult, Verdict};
use idem::testing::conformance::{self, Check, Profile, Subject, Violation};
use idem::{Fingerprint, MemoryStore, SqliteStore, Store};
use sealed_support::{claim, granted, key, recorded_as, replayed, ring, step, value};

const SECRET: [u8; 32] = [0x21; 32];

/// Secrets that the store must not hold: key, result and the bytes of the fingerprint.
const KEY: &str = "alice@example.com/4111111111111111";
const RESULT: &[u8] = b"{\"receipt\":\"RCPT-000-111-222\",\"name\":\"Alice Cooper\"}";
const STEP: &[u8] = b"{\"reservation\":\"RSRV-333-444\"}";
const PRINT: [u8; 32] = *b"private-amount-of-42-euros-00001";

/// All of them, in the order that the guarantees name.
fn all<S: Store>(store: S) -> impl Store {
    // A value that does not compress must fit, with its envelope, into the store's limit.
    store.encrypted(ring()).compressed_up_to((1 << 20) - 64).digest_keys(&SECRET).cached(1_000)
}

/// A listing gives digests instead of keys, and the sizes of sealed results.
fn named(check: &&Check) -> bool {
    check.theme() != "listing"
}

#[test]
fn the_conformance_kit_holds_over_all_of_them_in_memory() -> Result<(), Violation> {
    for check in conformance::all().iter().filter(named) {
        check.run(|| async {
            let store = all(MemoryStore::new());
            Subject::new(store.clone(), Profile::tokio_clock()).handle(store)
        })?;
    }
    Ok(())
}

/// As in two processes: wrappers that share nothing, over one store.
#[test]
fn the_conformance_kit_holds_over_two_encrypted_handles_of_one_store() -> Result<(), Violation> {
    for check in conformance::all().iter().filter(named) {
        check.run(|| async {
            let store = MemoryStore::new();
            let handle = store.clone().encrypted(ring());
            Subject::new(store.encrypted(ring()), Profile::tokio_clock()).handle(handle)
        })?;
    }
    Ok(())
}

/// One store and its clone, because with two caches a forgotten key is replayed until the bound, by design.
async fn all_on_a_file() -> Subject {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("idem.db");
    let store = all(SqliteStore::builder(path).max_result_bytes(1 << 20).open().unwrap());
    Subject::new(store.clone(), Profile::real_clock().short(Duration::from_millis(300)))
        .handle(store)
        .keep(folder)
}

#[test]
fn the_conformance_kit_holds_over_all_of_them_on_a_file() -> Result<(), Violation> {
    let checks = conformance::all().iter().filter(named);
    checks.into_iter().try_for_each(|check| check.run(all_on_a_file))
}

/// Records a result with a fingerprint, and on another key a step.
async fn fill(store: &impl Store) {
    let asked = || claim().with_fingerprint(Some(Fingerprint::from_bytes(PRINT)));
    recorded_as(store, &key(KEY), &asked(), Verdict::Completed, RESULT).await;
    assert_eq!(replayed(store, &key(KEY)).await.1, value(RESULT));
    let request = asked();
    let other = key(&format!("{KEY}/2"));
    let grant = granted(store, &other, &request).await;
    let step = step("reserve", STEP).with_input(Some(Fingerprint::from_bytes(PRINT)));
    let record = RecordStep::new(request.owner, grant.fence, 0, step);
    store.record_step(&other, &record).await.unwrap();
}

/// The number of times each secret occurs in these bytes.
fn found(bytes: &[u8]) -> [usize; 4] {
    [KEY.as_bytes(), RESULT, STEP, &PRINT].map(|secret| {
        // Eight equal bytes in a row count as an occurrence.
        bytes.windows(8).filter(|part| secret.chunks_exact(8).any(|piece| piece == *part)).count()
    })
}

async fn in_the_file(change: impl AsyncFn(SqliteStore)) -> [usize; 4] {
    let folder = tempfile::tempdir().unwrap();
    change(SqliteStore::open(folder.path().join("idem.db")).unwrap()).await;
    // The file and its write-ahead log.
    let files = std::fs::read_dir(folder.path()).unwrap();
    let bytes = files.flat_map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect::<Vec<_>>();
    assert!(bytes.windows(11).any(|part| part == b"test.sealed"), "this is not what was written");
    found(&bytes)
}

#[tokio::test]
async fn nothing_private_is_in_the_file() {
    let plain = in_the_file(async |store| fill(&store).await).await;
    assert!(plain.iter().all(|count| *count > 0), "the search finds nothing: {plain:?}");
    let sealed = in_the_file(async |store| fill(&store.encrypted(ring()).digest_keys(&SECRET)).await).await;
    assert_eq!(sealed, [0; 4]);
    assert_eq!(in_the_file(async |store| fill(&all(store)).await).await, [0; 4]);
}

#[tokio::test]
async fn nothing_private_is_on_a_redis_server() {
    async fn dump(url: &str) -> Vec<u8> {
        let client = redis::Client::open(url).unwrap();
        let mut connection = client.get_connection().unwrap();
        let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        assert!(!names.is_empty());
        let mut bytes = Vec::new();
        for name in names {
            bytes.extend_from_slice(&name);
            let kind: String = redis::cmd("TYPE").arg(&name).query(&mut connection).unwrap();
            match kind.as_str() {
                "string" => {
                    let value: Vec<u8> = redis::cmd("GET").arg(&name).query(&mut connection).unwrap();
                    bytes.extend(value);
                }
                "list" => {
                    let values: Vec<Vec<u8>> =
                        redis::cmd("LRANGE").arg(&name).arg(0).arg(-1).query(&mut connection).unwrap();
                    bytes.extend(values.concat());
                }
                other => panic!("what is a {other} doing here?"),
            }
        }
        bytes
    }
    for (sealed, wanted) in [(false, false), (true, true)] {
        let server = idem_test_servers::Redis::start();
        let store = idem::RedisStore::connect(server.url()).await.unwrap();
        if sealed {
            fill(&all(store)).await;
        } else {
            fill(&store).await;
        }
        let counts = found(&dump(&server.url()).await);
        assert_eq!(counts.iter().all(|count| *count == 0), wanted, "{counts:?}");
        assert_eq!(counts.contains(&0), wanted, "the search does not find all: {counts:?}");
    }
}

#[tokio::test]
async fn compression_works_only_before_encryption() {
    let result = vec![b'a'; 50_000];
    let (before, after) = (MemoryStore::new(), MemoryStore::new());
    recorded_as(
        &before.clone().encrypted(ring()).compressed(),
        &key("a"),
        &claim(),
        Verdict::Completed,
        &result,
    )
    .await;
    recorded_as(
        &after.clone().compressed().encrypted(ring()),
        &key("a"),
        &claim(),
        Verdict::Completed,
        &result,
    )
    .await;
    let size = async |store: &MemoryStore| match store.get(&key("a")).await.unwrap().unwrap().result.unwrap()
    {
        StoredResult::Value(bytes) => bytes.len(),
        other => panic!("{other:?}"),
    };
    assert!(size(&before).await < 200);
    assert!(size(&after).await > 50_000);
}
