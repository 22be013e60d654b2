//! A transaction that cannot record the call, because another has finished it. What a killed session and a connection
//! without a transaction do is among the cases of each driver.

use std::sync::Arc;
use std::time::Duration;

use idem::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, StoredResult, Verdict};
use idem::{Key, RecordKey, Scope, Store as _};
use tokio::sync::Notify;

use super::{Bank, Then, effect, pay};

#[tokio::test]
async fn a_claim_that_is_lost_meanwhile_fails_the_call_and_the_transaction_cannot_commit() {
    let bank = Bank::open().await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let then = Then::Wait(begun.clone(), go_on.clone());
    let mut tx = bank.begin().await;
    effect(&mut tx, "the caller's").await.unwrap();
    // A worker outside transactions had the key and its lease is over, but the worker still runs and finishes first.
    let key = RecordKey::new(Scope::new("bank.pay").unwrap(), Key::new("order/1").unwrap());
    let (owner, ttl) = (Owner::random(), Duration::from_secs(60));
    let claim = Claim::new(owner, Duration::from_millis(1), ttl);
    let ClaimAnswer::Granted(grant) = bank.store.claim(&key, &claim).await.unwrap() else { panic!() };
    idem_test_servers::until("its lease is over", || {
        bank.server.sql("select lease_until < now() from idem_records_readable") == "t"
    });
    let call = pay(&bank.store, &mut tx, "1", then);
    let other = async {
        begun.notified().await;
        let (verdict, result) = (Verdict::Completed, StoredResult::Value("9".into()));
        let completion = Complete::new(owner, grant.fence, verdict, result, ttl);
        assert_eq!(bank.store.complete(&key, &completion).await.unwrap(), CompleteAnswer::Done);
        go_on.notify_one();
    };
    let (paid, ()) = tokio::join!(call, other);
    assert_eq!(paid.unwrap_err().kind(), "not_recorded");
    let after = effect(&mut tx, "after").await.unwrap_err();
    assert!(after.to_string().contains("aborted"), "{after}");
    let _ = tx.commit().await;
    assert_eq!(bank.effects(), 0);
    assert_eq!(bank.pay("1").await.unwrap(), 9);
}
