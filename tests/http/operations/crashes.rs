//! Operations whose process is gone. The tests let the process live, but the store no longer accepts its
//! renewals, completions and releases.

use std::time::{Duration, Instant};

use idem::testing::{Fault, FaultStore, OperationKind};
use idem::{MemoryStore, OnCrash, Store};
use idem_test_servers::web::Request;

use super::{Api, is_the_same, of, place, request, settings, until_over};

/// Longer than any pause of a process on a busy machine.
const LEASE: Duration = Duration::from_secs(3);

async fn process<St: Store>(store: St, on_crash: OnCrash) -> Api {
    Api::with(settings(store).lease(LEASE).on_crash(on_crash)).await
}

#[tokio::test]
async fn an_operation_of_a_killed_process_runs_until_its_lease_is_over_and_then_once_more_or_is_in_doubt() {
    for on_crash in [OnCrash::Rerun, OnCrash::InDoubt] {
        let shared = MemoryStore::new();
        let store = FaultStore::new(shared.clone());
        let first = process(store.clone(), on_crash).await;
        let second = process(shared, on_crash).await;
        let name = first.begin("").await;
        // The first process renews the lease while the operation runs, and the second process sees that.
        let begin = Instant::now();
        while begin.elapsed() < LEASE + LEASE / 4 {
            for request in [of("a", Request::new("GET", &name)), request("k", "")] {
                assert_eq!(place(&second.server.ask(request).await), name);
            }
            tokio::time::sleep(LEASE / 20).await;
        }
        for kind in [OperationKind::Renew, OperationKind::Complete, OperationKind::Release] {
            store.always(kind, Some(Fault::FailBefore));
        }
        assert_eq!(place(&second.server.ask(request("k", "")).await), name);
        let interrupted = until_over(second.server.address, &name).await;
        if on_crash == OnCrash::InDoubt {
            for refused in [interrupted, second.server.ask(request("k", "")).await, second.look(&name).await]
            {
                assert_eq!((refused.status, refused.problem()), (409, "in-doubt".into()));
            }
            continue;
        }
        assert_eq!((interrupted.status, interrupted.problem()), (500, "handler-failed".into()));
        // A `GET` of the location does not run the operation again.
        assert_eq!(second.look(&name).await.problem(), "handler-failed");
        assert_eq!(second.begin("").await, name);
        let end = second.end(&name).await;
        let recovered = (end.status, end.text("x-recovered"), &end.body[..]);
        assert_eq!(recovered, (201, Some("true"), &b"report 1"[..]));
        assert!(is_the_same(&second.server.ask(request("k", "")).await, &end));
    }
}
