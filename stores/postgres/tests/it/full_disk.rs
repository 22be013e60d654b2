//! `PostgresStore` on a server whose disk is full.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, Owner, Renew, RenewAnswer, StoredResult, Verdict,
};
use idem_runtime::{Key, OnCrash, RecordKey, Scope, Store as _, StoreErrorKind};
use idem_test_servers::Postgres;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3_600);

fn key(number: usize) -> RecordKey {
    RecordKey::new(Scope::new("full").unwrap(), Key::new(format!("order {number}")).unwrap())
}

async fn claim(store: &PostgresStore, number: usize, owner: Owner) -> ClaimAnswer {
    let on_crash = OnCrash::Rerun;
    let request = Claim::new(owner, HOUR, HOUR).with_on_crash(on_crash);
    store.claim(&key(number), &request).await.unwrap()
}

async fn grant(store: &PostgresStore, number: usize) -> (Owner, Grant) {
    let owner = Owner::random();
    let ClaimAnswer::Granted(grant) = claim(store, number, owner).await else { panic!("{number}") };
    (owner, grant)
}

/// A result that cannot be compressed.
fn result() -> Vec<u8> {
    (0..MIB / 8).flat_map(|_| rand::random::<u64>().to_le_bytes()).collect()
}

async fn is_replayed(store: &PostgresStore, number: usize, result: &[u8]) -> bool {
    match claim(store, number, Owner::random()).await {
        ClaimAnswer::Replay(replay) => replay.result == StoredResult::Value(result.to_vec().into()),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_an_error_that_loses_nothing_and_passes_when_there_is_room() {
    let mut server = Postgres::start();
    let builder = PostgresStore::builder(&server.url()).operation_timeout(Duration::from_secs(3));
    let store = builder.connect().await.unwrap();
    server.limit_files(Some(16 << 20));
    let mut kept = Vec::new();
    let (refused, result) = loop {
        let (owner, grant) = grant(&store, kept.len()).await;
        let value = result();
        let result = StoredResult::Value(value.clone().into());
        let completion = Complete::new(owner, grant.fence, Verdict::Completed, result, HOUR);
        let mut answer = store.complete(&key(kept.len()), &completion).await;
        for _ in 0..10 {
            // The time may end in the middle of a try. Most tries end before.
            if answer.as_ref().is_err_and(|error| error.is_outcome_unknown()) {
                answer = store.complete(&key(kept.len()), &completion).await;
            }
        }
        match answer {
            Ok(answer) => assert_eq!(answer, CompleteAnswer::Done),
            Err(error) => {
                assert_eq!(error.kind(), StoreErrorKind::Unavailable, "{error}");
                assert!(error.to_string().contains("could not extend file"), "{error}");
                break (completion, value);
            }
        }
        kept.push(value);
        assert!(kept.len() < 100, "the disk is never full");
    };
    assert!(kept.len() > 5, "{}", kept.len());
    // Acknowledged results are recorded, and refused ones left the claim with its owner.
    for (number, value) in kept.iter().enumerate() {
        assert!(is_replayed(&store, number, value).await, "{number}");
    }
    let renewal = Renew::new(refused.owner, refused.fence, HOUR);
    assert_eq!(store.renew(&key(kept.len()), &renewal).await.unwrap(), RenewAnswer::Held);
    server.limit_files(None);
    assert_eq!(store.complete(&key(kept.len()), &refused).await.unwrap(), CompleteAnswer::Done);
    kept.push(result);
    // The disk is full again, and the server is killed.
    server.limit_files(Some(16 << 20));
    let (owner, held) = grant(&store, kept.len()).await;
    server.server().kill();
    server.restart();
    for (number, value) in kept.iter().enumerate() {
        assert!(is_replayed(&store, number, value).await, "{number}");
    }
    let renewal = Renew::new(owner, held.fence, HOUR);
    assert_eq!(store.renew(&key(kept.len()), &renewal).await.unwrap(), RenewAnswer::Held);
}
