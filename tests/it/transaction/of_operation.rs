//! Tests of `Operation::run_in_transaction`: the attribute's `transaction` without the attribute.

use std::time::Duration;

use idem::{Error, Operation, StepError};
use sqlx::{Postgres, Transaction};

use super::{Bank, Failure, effect};

type Tx<'t> = Transaction<'t, Postgres>;

fn pay() -> Operation {
    Operation::new("bank.pay")
}

async fn paid(tx: &mut Tx<'_>) -> Result<u32, Failure> {
    effect(tx, "paid").await?;
    Ok(7)
}

#[tokio::test]
async fn claim_effects_and_result_are_one_commit_and_the_next_call_gets_the_result() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let call = pay().run_in_transaction(&bank.store, &mut tx, "1", paid);
    assert_eq!(call.await.unwrap(), 7);
    assert_eq!(bank.effects(), 0, "the caller has not committed");
    tx.rollback().await.unwrap();

    for _ in 0..2 {
        let mut tx = bank.begin().await;
        let body = async |tx: &mut Tx<'_>| paid(tx).await;
        assert_eq!(pay().run_in_transaction(&bank.store, &mut tx, "1", body).await.unwrap(), 7);
        tx.commit().await.unwrap();
        assert_eq!(bank.effects(), 1);
    }
    // Outside a transaction it is the same record.
    let replayed = pay().run(&bank.store, "1", || async { Err::<u32, _>(Failure::Transient) }).await;
    assert_eq!(replayed.unwrap(), 7);
}

#[tokio::test]
async fn what_cannot_go_with_a_transaction_is_refused_before_the_body() {
    let bank = Bank::open().await;
    let second = Duration::from_secs(1);
    for operation in
        [pay().fail_open(), pay().max_attempts(1), pay().timeout(second), pay().retry_after(second)]
    {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", paid).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    let paced = [pay().record_if(|_| true), pay().retry_after_error(|_: &Failure, _| Duration::ZERO)];
    for operation in paced {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", paid).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    assert_eq!(bank.effects(), 0);
}

#[tokio::test]
async fn a_step_in_a_transaction_is_an_error_and_does_not_run() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let body = async |tx: &mut Tx<'_>| idem::step("pay", || paid(tx)).await;
    let refused = pay().run_in_transaction(&bank.store, &mut tx, "1", body).await.unwrap_err();
    assert!(
        matches!(refused, Failure::Idem(Error::Step { source: StepError::Unprotected, .. })),
        "{refused:?}"
    );
    assert_eq!(refused.kind(), "step_unprotected");
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), 0);
}
