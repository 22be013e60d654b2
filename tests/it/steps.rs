//! Tests of steps: their names, and what a rerun reads. The simulation tests what is recorded and returned
//! again, and when a step is refused.

use futures_util::future::join;
use idem::testing::{FaultStore, OperationKind};
use idem::{Error, MemoryStore, Step, StepError, StepName as _};

use crate::support::{Failure, Runs, operation};

/// A step that counts its runs.
async fn counted(name: &str, runs: &Runs) -> Result<usize, Failure> {
    idem::step(name, || async { Ok(runs.run()) }).await
}

/// Why a step gave no value.
fn reason(failure: Failure) -> StepError {
    match failure {
        Failure::Idem(Error::Step { source, .. }) => source,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_attempt_reads_nothing_and_a_rerun_reads_once() {
    let (store, runs) = (FaultStore::new(MemoryStore::new()), Runs::default());
    let body = |ends: bool| {
        let runs = &runs;
        async move {
            counted("a", runs).await?;
            counted("b", runs).await?;
            if ends { Ok(0) } else { Err(Failure::Transient) }
        }
    };
    operation().run(&store, "k", || body(false)).await.unwrap_err();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (0, 2));
    operation().run(&store, "k", || async { Err::<usize, _>(Failure::Transient) }).await.unwrap_err();
    assert_eq!(store.asked(OperationKind::Get), 0, "a body without steps reads nothing");
    operation().run(&store, "k", || body(true)).await.unwrap();
    assert_eq!((store.asked(OperationKind::Get), store.asked(OperationKind::RecordStep)), (1, 2));
}

#[tokio::test]
async fn what_a_step_holds_is_in_no_debug_text() {
    let step = format!("{:?}", Step::new("charge").fingerprint("4711 4711 4711"));
    assert!(step.contains("charge"), "{step}");
    let other = format!("{:?}", Step::new("charge").fingerprint("4712"));
    assert_eq!(step, other);
}

#[tokio::test]
async fn a_name_that_this_run_has_had_is_refused_before_it_runs() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = || async {
        counted("a", &runs).await?;
        let again = reason(counted("a", &runs).await.unwrap_err());
        assert!(matches!(again, StepError::Repeated));
        Err::<usize, _>(Failure::Transient)
    };
    operation().run(&store, "k", body).await.unwrap_err();
    // The same holds in a rerun, where the first of the two steps gets its result from the record.
    operation().run(&store, "k", body).await.unwrap_err();
    let both = operation().run(&store, "k", || async {
        let (one, other) = join(counted("b", &runs), counted("b", &runs)).await;
        assert!(one.is_ok() && matches!(reason(other.unwrap_err()), StepError::Repeated));
        Ok::<_, Failure>(0)
    });
    both.await.unwrap();
    assert_eq!(runs.count(), 2);
}

#[tokio::test]
async fn a_name_that_cannot_be_used_is_refused_and_any_other_text_is_a_name() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let long = "n".repeat(idem::MAX_STEP_NAME_BYTES);
    let call = operation().run(&store, "k", || async {
        for bad in ["", &format!("{long}n")] {
            let refused = counted(bad, &runs).await.unwrap_err();
            assert_eq!(refused.kind(), "configuration");
        }
        for good in [long.as_str(), " ", "\0", "ключ", "a\n\"b\""] {
            counted(good, &runs).await?;
        }
        let refused = counted("a\n\"b\"", &runs).await.unwrap_err().to_string();
        assert!(refused.contains(r#"step "a\n\"b\"""#), "{refused}");
        Ok::<_, Failure>(0)
    });
    call.await.unwrap();
    assert_eq!(runs.count(), 5);
    assert_eq!(counted("", &runs).await.unwrap_err().kind(), "configuration", "outside a call too");
    // Records contain this name, so it must never change.
    assert_eq!(("line", 399_usize).into_name(), "line[399]");
}
