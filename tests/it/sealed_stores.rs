//! Tests of encryption, digests, compression and the cache together: what the store holds, and that all of
//! them together are a correct store.

use crate::sealed_support;

use std::time::Duration;

use idem::StoreExt as _;
use idem::protocol::{RecordStep, Verdict};
use idem::testing::conformance::{self, Check, Profile, Subject, Violation};
use idem::{Caching, Fingerprint, MemoryStore, SqliteStore, Store};
use sealed_support::{claim, granted, key, recorded_as, replayed, ring, step, value};

const SECRET: [u8; 32] = [0x21; 32];

/// Secrets that the store must not hold: key, result, step and the bytes of the fingerprint.
const KEY: &str = "alice@example.com/4111111111111111";
const RESULT: &[u8] = b"{\"receipt\":\"RCPT-000-111-222\",\"name\":\"Alice Cooper\"}";
const STEP: &[u8] = b"{\"reservation\":\"RSRV-333-444\"}";
const PRINT: [u8; 32] = *b"private-amount-of-42-euros-00001";

/// The limit of the store. A value that does not compress must fit into it with its envelope.
const LIMIT: usize = 1 << 17;

/// Puts all wrappers around a store, in the order that `docs/wrappers.md` names.
fn all<S: Store>(store: S) -> impl Store {
    let sealed = store.encrypted(ring()).compressed_up_to(LIMIT - 64).digest_keys(&SECRET);
    // The cache does not know when a result expires. So in this test, the cache may answer a claim only in
    // the microsecond after it got the result.
    sealed.cached(Caching::entries(1_000).ask_again_after(Duration::from_micros(1)))
}

/// Leaves out the checks of listings, because listings of a wrapped store return the digests of keys and the
/// sizes of encrypted results.
fn named(check: &&Check) -> bool {
    check.theme() != "listing"
}

/// The two handles are a store and its clone, so they share one cache. With two caches, a forgotten key would
/// be replayed until the cache's time limit, by design. Each run takes another quarter of the kit's short
/// sequences of requests.
#[test]
fn the_conformance_kit_holds_over_all_of_them() -> Result<(), Violation> {
    for check in conformance::all().iter().filter(named) {
        check.run(|| async {
            let store = all(MemoryStore::with_max_result_bytes(LIMIT));
            Subject::new(store.clone(), Profile::tokio_clock().sample(4)).handle(store)
        })?;
    }
    Ok(())
}

/// Records a result with a fingerprint, and a step on another key.
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

/// How often each secret occurs in these bytes. Eight bytes of a secret count as an occurrence.
fn found(bytes: &[u8]) -> [usize; 4] {
    [KEY.as_bytes(), RESULT, STEP, &PRINT].map(|secret| {
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
