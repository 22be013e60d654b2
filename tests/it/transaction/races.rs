//! Calls without a transaction beside those in one, and a look at the record that comes too early.

use std::time::{Duration, Instant};

use idem::{Error, Operation, Outcome, observe};
use idem_test_servers::until;
use sqlx::Executor as _;

use super::{Bank, Failure, Then, pay};

/// Makes a call with the same key as `pay`, without a transaction.
async fn pay_plainly(bank: &Bank, order: &str, wait: Duration) -> Result<u32, Failure> {
    let operation = Operation::new("bank.pay").wait(wait);
    operation.run(&bank.store, ("order", order), || async { Ok::<_, Failure>(8) }).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_transaction_meets_one_that_is_open_as_in_flight_at_once() {
    let bank = Bank::open().await;
    for (order, recorded_before) in [("1", false), ("2", true)] {
        if recorded_before {
            // There is a released record, which the transaction replaces.
            let operation = Operation::new("bank.pay");
            let failed =
                operation.run(&bank.store, ("order", order), || async { Err::<u32, _>(Failure::Transient) });
            failed.await.unwrap_err();
        }
        let mut tx = bank.pool.begin().await.unwrap();
        pay(&bank.store, &mut tx, order, Then::Return).await.unwrap();
        // It does not wait for the transaction, and neither do other calls in the same batch.
        let (begin, another) = (Instant::now(), format!("other {order}"));
        let (same, other) = tokio::join!(
            pay_plainly(&bank, order, Duration::ZERO),
            pay_plainly(&bank, &another, Duration::ZERO)
        );
        assert!(matches!(same, Err(Failure::Idem(Error::InFlight { .. }))), "{same:?}");
        assert_eq!(other.unwrap(), 8);
        // The machine may pause. A call that waited for the transaction would fail after 10 s.
        assert!(begin.elapsed() < Duration::from_secs(9), "{:?}", begin.elapsed());
        tx.commit().await.unwrap();
        assert_eq!(pay_plainly(&bank, order, Duration::ZERO).await.unwrap(), 7);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_transaction_that_waits_gets_the_result_of_a_commit_or_its_turn() {
    let bank = Bank::open().await;
    for (order, commits, expected) in [("1", true, 7), ("2", false, 8)] {
        let mut tx = bank.pool.begin().await.unwrap();
        pay(&bank.store, &mut tx, order, Then::Return).await.unwrap();
        let waiting = observe(pay_plainly(&bank, order, Duration::from_secs(20)));
        let ending = async {
            // The last statement of a claim that found no record and did not get the key.
            let asks = "select count(*) from pg_stat_activity where query like '%r.key IS NOT NULL AS found%' \
                        and query_start > (select max(xact_start) from pg_stat_activity where state = 'idle in transaction')";
            until("the duplicate asks", || bank.server.sql(asks) != "0");
            if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
        };
        let (waited, ()) = tokio::join!(waiting, ending);
        assert_eq!(waited.value.unwrap(), expected);
        assert_eq!(matches!(waited.outcome, Some(Outcome::Replayed { .. })), commits);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_looked_before_the_one_before_it_committed_looks_again_when_it_has_the_key() {
    let bank = Bank::open().await;
    // Stops a lookup between reading the record and asking for the key.
    for statement in [
        "CREATE SCHEMA gated",
        "CREATE FUNCTION gated.pg_try_advisory_xact_lock(number bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS \
         $$ BEGIN PERFORM pg_advisory_lock_shared(42); PERFORM pg_advisory_unlock_shared(42); \
         RETURN pg_catalog.pg_try_advisory_xact_lock(number); END $$",
    ] {
        bank.pool.execute(statement).await.unwrap();
    }
    let mut first = bank.pool.begin().await.unwrap();
    pay(&bank.store, &mut first, "1", Then::Return).await.unwrap();
    let mut gate = bank.pool.begin().await.unwrap();
    gate.execute("SELECT pg_advisory_xact_lock(42)").await.unwrap();
    let mut second = bank.pool.begin().await.unwrap();
    second.execute("SET LOCAL search_path = gated, pg_catalog, public").await.unwrap();
    let again = observe(pay(&bank.store, &mut second, "1", Then::Return));
    let opening = async {
        let waits = "select count(*) from pg_stat_activity where wait_event = 'advisory'";
        let ending = async {
            while bank.server.sql(waits) != "1" {
                tokio::task::yield_now().await;
            }
            // It has read that there is no record.
            first.commit().await.unwrap();
            gate.commit().await.unwrap();
        };
        tokio::time::timeout(Duration::from_secs(60), ending).await.expect("it comes to the gate");
    };
    let (again, ()) = tokio::join!(again, opening);
    assert_eq!(again.value.unwrap(), 7);
    assert!(matches!(again.outcome, Some(Outcome::Replayed { .. })), "{:?}", again.outcome);
    second.commit().await.unwrap();
    assert_eq!(bank.effects(), 1);
}
