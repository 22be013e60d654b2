//! Tests of how long an attempt may take, and when the next one is due.

use std::time::Duration;

use idem::{Error, MemoryStore};
use idem_testing::FaultStore;
use tokio::time::{advance, timeout};

use crate::events::Events;
use crate::support::{Failure, Runs, operation};

/// Runs in real time, because the paused clock stands still while a task is ready. The body here uses up its
/// task's budget at each poll, and without a budget tokio's timers stay pending.
#[tokio::test]
async fn a_body_that_is_always_ready_ends_at_its_timeout() {
    async fn busy() -> Result<usize, Failure> {
        loop {
            tokio::task::consume_budget().await;
        }
    }
    let (store, down) = (FaultStore::new(MemoryStore::new()), FaultStore::new(MemoryStore::new()));
    down.down(true);
    for store in [store, down] {
        let operation = operation().fail_open().timeout(Duration::from_millis(50));
        let call = operation.run(&store, "k", busy);
        assert_eq!(
            timeout(Duration::from_secs(20), call).await.expect("it ends").unwrap_err().kind(),
            "timed_out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_key_is_not_due_before_its_time_and_each_time_is_longer() {
    let (events, _guard) = Events::start();
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let operation = operation().retry_after(Duration::from_secs(10)..Duration::from_secs(60));
    let call = || {
        operation.run(&store, "k", || async {
            runs.run();
            Err::<usize, _>(Failure::Transient)
        })
    };
    for (attempt, longest) in [(1, 10), (2, 20), (3, 40), (4, 60), (5, 60)] {
        assert!(matches!(call().await, Err(Failure::Transient)));
        let refused = call().await.unwrap_err();
        let Failure::Idem(error @ Error::NotDue { retry_after, .. }) = &refused else {
            panic!("{refused:?}")
        };
        assert!(error.is_retryable());
        let (least, most) = (Duration::from_secs(longest) / 2, Duration::from_secs(longest));
        assert!((least..=most).contains(retry_after), "{attempt}: {retry_after:?}");
        assert_eq!(runs.count(), attempt);
        advance(*retry_after).await;
    }
    assert_eq!(events.names().iter().filter(|name| *name == "not_due").count(), 5);
}
