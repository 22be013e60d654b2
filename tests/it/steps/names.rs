//! Names of steps, their inputs, and steps within steps: what is refused before it runs.

use futures_util::future::join;
use idem::{MemoryStore, Operation, Step, StepError};

use super::{counted, reason, recorded};
use crate::support::{Failure, Runs, operation};

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
    // Also if both results come from the record.
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
async fn a_loop_names_its_steps_by_an_index() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let body = |lines: usize, ends: bool| {
        let runs = &runs;
        async move {
            let mut sum = 0;
            for line in 0..lines {
                sum += idem::step(("line", line), || async { Ok::<_, Failure>(runs.run()) }).await?;
            }
            if ends { Ok(sum) } else { Err(Failure::Transient) }
        }
    };
    operation().run(&store, "k", || body(400, false)).await.unwrap_err();
    assert_eq!(recorded(&store).await[399], "line[399]");
    assert_eq!(operation().run(&store, "k", || body(500, true)).await.unwrap(), 500 * 501 / 2);
    assert_eq!(runs.count(), 500);
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
}

#[tokio::test]
async fn a_step_recorded_for_another_input_is_refused_before_it_runs() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let charge = |amount: Option<u64>| {
        let runs = &runs;
        async move {
            let step = Step::new("charge");
            let step = if let Some(amount) = amount { step.fingerprint(&amount) } else { step };
            step.run(|| async { Ok::<_, Failure>(runs.run()) }).await
        }
    };
    let call = async |amount| {
        let body = || async {
            assert_eq!(charge(amount).await?, 1);
            Err::<usize, _>(Failure::Transient)
        };
        operation().run(&store, "k", body).await.unwrap_err()
    };
    assert!(matches!(call(Some(1)).await, Failure::Transient));
    assert!(matches!(reason(call(Some(2)).await), StepError::InputChanged));
    for same in [Some(1), None] {
        assert!(matches!(call(same).await, Failure::Transient));
    }
    let unspeakable = operation().run(&store, "k", || async {
        Step::new("charge").fingerprint(&f64::NAN).run(|| async { Ok::<_, Failure>(runs.run()) }).await
    });
    assert_eq!(unspeakable.await.unwrap_err().kind(), "configuration");
    assert_eq!(runs.count(), 1);
}

#[tokio::test]
async fn a_step_inside_a_step_is_refused_and_a_call_inside_one_has_steps_of_its_own() {
    let (store, runs) = (MemoryStore::new(), Runs::default());
    let call = operation().run(&store, "k", || async {
        idem::step("outer", || async {
            assert!(matches!(reason(counted("inner", &runs).await.unwrap_err()), StepError::Nested));
            let inner = Operation::new("inner").run(&store, "i", || async {
                assert_eq!(counted("outer", &runs).await?, 1);
                Ok::<_, Failure>(0)
            });
            inner.await
        })
        .await?;
        // It is over, so the next step is not nested in it.
        counted("next", &runs).await
    });
    assert_eq!(call.await.unwrap(), 2);
}
