//! Tests of relaxed claims: which commits wait for the disk.

use std::time::Duration;

use super::SqliteStore;
use super::queue::{Answer, Applying, Op};
use super::tests::{claim_request, completion, folder, key};
use idem_core::Store;
use idem_core::protocol::{
    self, Claim, ClaimAnswer, CompleteAnswer, Durability, Grant, OnCrash, Release, ReleaseAnswer,
    ReleaseCause, Renew, RenewAnswer,
};

/// What `PRAGMA synchronous` says.
const NORMAL: i64 = 1;
const FULL: i64 = 2;

fn relaxed() -> Claim {
    claim_request().with_durability(Durability::Relaxed)
}

async fn grant(store: &SqliteStore, name: &str, request: &Claim) -> Grant {
    match store.claim(&key(name), request).await.unwrap() {
        ClaimAnswer::Granted(grant) => grant,
        other => panic!("{other:?}"),
    }
}

/// How the commits since the last look waited for the disk.
fn commits(store: &SqliteStore) -> Vec<i64> {
    std::mem::take(&mut store.0.queue.commits.lock().unwrap())
}

/// The name and the grant of a claim that did not wait for the disk. One whose key no reader could look up does.
async fn grant_at_once(store: &SqliteStore, name: &str, request: &Claim) -> (String, Grant) {
    for number in 0..20 {
        let name = format!("{name} {number}");
        let held = grant(store, &name, request).await;
        match commits(store)[..] {
            [NORMAL] => return (name, held),
            [FULL] => {}
            ref other => panic!("{other:?}"),
        }
    }
    panic!("each claim waited for the disk");
}

#[tokio::test]
async fn a_relaxed_claim_does_not_wait_for_the_disk_and_everything_after_it_does() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let request = relaxed();
    let (a, held) = grant_at_once(&store, "a", &request).await;
    let renewal = Renew::new(request.owner, held.fence, Duration::from_secs(60));
    assert_eq!(store.renew(&key(&a), &renewal).await.unwrap(), RenewAnswer::Held);
    let result = completion(request.owner, held.fence, 10);
    assert_eq!(store.complete(&key(&a), &result).await.unwrap(), CompleteAnswer::Done);
    assert_eq!(commits(&store), [FULL, FULL]);
    grant(&store, "b", &claim_request()).await;
    assert_eq!(commits(&store), [FULL]);
    let other = relaxed();
    let (c, held) = grant_at_once(&store, "c", &other).await;
    let release = Release::new(other.owner, held.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&key(&c), &release).await.unwrap(), ReleaseAnswer::Released);
    assert_eq!(commits(&store), [FULL]);
}

#[tokio::test]
async fn a_relaxed_claim_waits_for_the_disk_if_its_key_has_a_record() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let lapsing = relaxed().with_lease(Duration::from_millis(1));
    let (a, _) = grant_at_once(&store, "a", &lapsing).await;
    // The store's clock is the system's: the lease is over as soon as a claim is granted.
    let mut asked = store.claim(&key(&a), &relaxed()).await.unwrap();
    while matches!(asked, ClaimAnswer::Busy { .. }) {
        asked = store.claim(&key(&a), &relaxed()).await.unwrap();
    }
    assert!(matches!(asked, ClaimAnswer::Granted(Grant { attempt: 2, recovered: true, .. })), "{asked:?}");
    assert_eq!(commits(&store), [FULL]);
}

#[tokio::test]
async fn a_key_that_seemed_new_and_is_taken_over_waits_for_the_disk() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let claim = async |request: Claim| {
        let applying = Applying { key: key("a"), request: request.into(), seems_new: true };
        match store.0.queue.submit(Op::Apply(applying), Duration::from_secs(60)).await.unwrap() {
            Ok(Answer::Applied(protocol::Answer::Claim(answer))) => answer,
            _ => panic!("no answer to a claim"),
        }
    };
    claim(relaxed().with_lease(Duration::from_millis(1))).await;
    commits(&store);
    let mut asked = claim(relaxed()).await;
    while matches!(asked, ClaimAnswer::Busy { .. }) {
        assert_eq!(commits(&store), [NORMAL]);
        asked = claim(relaxed()).await;
    }
    assert!(matches!(asked, ClaimAnswer::Granted(Grant { attempt: 2, .. })), "{asked:?}");
    assert_eq!(commits(&store), [FULL]);
    // And the next one is relaxed again.
    grant_at_once(&store, "b", &relaxed()).await;
}

#[tokio::test]
async fn what_depends_on_a_record_of_each_start_is_not_relaxed() {
    let folder = folder();
    let store = SqliteStore::open(folder.path().join("idem.db")).unwrap();
    let careful = [
        relaxed().with_on_crash(OnCrash::InDoubt),
        relaxed().with_max_attempts(std::num::NonZeroU32::new(3)),
        relaxed().with_recovers(true),
    ];
    for (number, request) in careful.iter().enumerate() {
        grant(&store, &number.to_string(), request).await;
    }
    assert_eq!(commits(&store), [FULL; 3]);
}
