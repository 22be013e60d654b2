//! Tests of the lease: it is kept even if the body blocks its thread. The simulation tests what happens when
//! the lease is lost.

use crate::support;

use std::time::Duration;

use idem::MemoryStore;
use idem::testing::{FaultStore, OperationKind};
use idem_test_servers::until;
use support::{Failure, operation};

/// Short for a lease, but much longer than the pauses of a busy machine.
const SHORT: Duration = Duration::from_secs(5);

/// The body blocks until the lease was renewed twice. Then a rival tries to get the key.
#[tokio::test]
async fn a_body_that_blocks_the_only_thread_of_its_runtime_keeps_its_lease() {
    let store = FaultStore::new(MemoryStore::new());
    let own = operation().lease(SHORT).run(&store, "k", || async {
        until("the lease is renewed twice", || store.applied(OperationKind::Renew) >= 2);
        let store = store.clone();
        let rival = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let call =
                operation().lease(SHORT).run(&store, "k", || async { Ok::<_, Failure>("rival".to_owned()) });
            runtime.block_on(call).unwrap_err().kind()
        });
        assert_eq!(rival.join().unwrap(), "in_flight");
        Ok::<_, Failure>("owner".to_owned())
    });
    assert_eq!(own.await.unwrap(), "owner");
}
