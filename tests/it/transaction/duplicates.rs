//! Several calls with one key, each in a transaction of its own.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Bank, Then, pay, pay_patiently};

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_that_waits_gets_the_result_of_a_commit_and_the_turn_of_a_rollback() {
    let bank = Bank::open().await;
    for (order, commits, expected) in [("1", true, 7), ("2", false, 8)] {
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = tokio::spawn({
            let (bank, then) = (bank.clone(), Then::Wait(begun.clone(), go_on.clone()));
            async move {
                let mut tx = bank.begin().await;
                pay(&bank.store, &mut tx, order, then).await.unwrap();
                if commits { tx.commit().await.unwrap() } else { tx.rollback().await.unwrap() }
            }
        });
        begun.notified().await;
        let waiting = tokio::spawn({
            let bank = bank.clone();
            async move {
                let mut tx = bank.begin().await;
                let paid = pay_patiently(&bank.store, &mut tx, order).await;
                tx.commit().await.unwrap();
                paid
            }
        });
        let asks = "select count(*) from pg_stat_activity where query like '%pg_try_advisory_xact_lock%' \
                    and query not like '%pg_stat_activity%'";
        idem_test_servers::until("the duplicate asks", || bank.server.sql(asks) != "0");
        go_on.notify_one();
        first.await.unwrap();
        assert_eq!(waiting.await.unwrap().unwrap(), expected);
    }
    assert_eq!(bank.effects(), 2);
}
