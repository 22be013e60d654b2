//! Steps that run at once, are dropped or are no longer polled before they are recorded.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::join3;
use idem::StepError;
use idem::testing::{Fault, OperationKind};
use tokio::time::timeout;

use super::{counted, faulty, reason, recorded};
use crate::support::{Failure, Runs, operation};

#[tokio::test(start_paused = true)]
async fn a_step_that_is_dropped_while_it_is_recorded_is_recorded_before_the_next_begins() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::RecordStep, Fault::HangAfter);
    let call = operation().run(&store, "k", || async {
        assert!(timeout(Duration::from_millis(1), counted("a", &runs)).await.is_err());
        assert_eq!(counted("b", &runs).await?, 2);
        assert_eq!(recorded(&store).await, ["a", "b"]);
        // Nobody has received its value yet.
        assert_eq!(counted("a", &runs).await?, 1);
        assert!(matches!(reason(counted("a", &runs).await.unwrap_err()), StepError::Repeated));
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_step_that_nobody_polls_any_more_does_not_keep_another_waiting() {
    let (store, runs) = (faulty(), Runs::default());
    store.next(OperationKind::RecordStep, Fault::DelayBefore(Duration::from_secs(2)));
    let call = operation().run(&store, "k", || async {
        let mut a = pin!(counted("a", &runs));
        assert!(timeout(Duration::from_millis(1), a.as_mut()).await.is_err());
        assert_eq!(
            timeout(Duration::from_secs(5), counted("b", &runs)).await.expect("it waits for ever")?,
            2
        );
        assert_eq!(a.await?, 1);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!((runs.count(), store.asked(OperationKind::RecordStep)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn steps_that_run_at_once_are_recorded_in_the_order_in_which_they_end() {
    let store = faulty();
    store.next(OperationKind::RecordStep, Fault::FailAfter);
    let slow = |name: &'static str, seconds: u64| {
        idem::step(name, move || async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            Ok::<_, Failure>(seconds)
        })
    };
    let call = operation().run(&store, "k", || async {
        let (c, a, b) = join3(slow("c", 3), slow("a", 1), slow("b", 1)).await;
        assert_eq!((a?, b?, c?), (1, 1, 3));
        assert_eq!(recorded(&store).await, ["a", "b", "c"]);
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
}
