//! Tests of runs whose outcome is unknown, and of workers that are alive while their key is in doubt.

use std::time::Duration;

use futures_util::future::join;
use idem::protocol::{Release, ReleaseCause, State};
use idem::{Error, Loss, MemoryStore, OnCrash, Store as _};
use idem_testing::{Fault, FaultStore, OperationKind};
use tokio::time::sleep;

use crate::events::Events;
use crate::support::{Failure, LEASE, crashed_worker, operation, record_key};

/// The worker's renewals fail until its lease is over. Then another call finds the lease lapsed. Before the
/// step starts, a renewal must confirm the claim. The first such renewal fails, so it is sent again.
#[tokio::test(start_paused = true)]
async fn a_worker_that_is_alive_in_doubt_goes_on_and_its_result_counts() {
    let (events, _guard) = Events::start();
    let (store, cautious) = (FaultStore::new(MemoryStore::new()), operation().on_crash(OnCrash::InDoubt));
    store.always(OperationKind::Renew, Fault::FailBefore);
    let call = cautious.run(&store, "k", || async {
        sleep(LEASE * 9 / 4).await;
        let renewals = store.asked(OperationKind::Renew);
        store.next(OperationKind::Renew, Fault::FailBefore);
        idem::step("charge", || async { Ok::<_, Failure>(store.asked(OperationKind::Renew) - renewals) })
            .await
    });
    let rival = async {
        sleep(LEASE + Duration::from_secs(1)).await;
        let refused = cautious.run(&store, "k", || async { Ok::<_, Failure>(0) }).await;
        assert_eq!(refused.unwrap_err().kind(), "in_doubt");
        store.always(OperationKind::Renew, None);
    };
    let (ended, ()) = join(call, rival).await;
    assert_eq!(ended.unwrap(), 2);
    let record = store.get(&record_key("k")).await.unwrap().unwrap();
    assert_eq!(record.state, State::Completed);
    assert_eq!(events.only("held_in_doubt")[0], "WARN");
    assert!(!events.names().contains(&"lease_lost".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_says_what_became_of_it() {
    for (then, expected) in [
        (None, Some(Loss::Forgotten)),
        (Some((OnCrash::Rerun, None)), Some(Loss::TakenOver)),
        (Some((OnCrash::Rerun, Some(ReleaseCause::Failed))), Some(Loss::Released)),
        (Some((OnCrash::InDoubt, Some(ReleaseCause::Abandoned))), None),
    ] {
        let store = MemoryStore::new();
        let call = operation().run(&store, "k", || async {
            store.forget(&record_key("k")).await.unwrap();
            if let Some((on_crash, cause)) = then {
                let (owner, grant) = crashed_worker(&store, "k", on_crash).await;
                if let Some(cause) = cause {
                    let release = Release::new(owner, grant.fence, cause);
                    store.release(&record_key("k"), &release).await.unwrap();
                }
            }
            std::future::pending::<Result<usize, Failure>>().await
        });
        let loss = match call.await.unwrap_err() {
            Failure::Idem(Error::LeaseLost { loss, .. }) => Some(loss),
            Failure::Idem(Error::InDoubt { .. }) => None,
            other => panic!("{then:?}: {other:?}"),
        };
        assert_eq!(loss, expected, "{then:?}");
    }
}
