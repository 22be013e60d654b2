//! Transactions that cannot record the call: another has finished it, the server is killed, none is open.

use std::sync::Arc;
use std::time::Duration;

use idem::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, StoredResult, Verdict};
use idem::{Key, PostgresStore, RecordKey, Scope, Store as _, idempotent};
use idem_test_servers::Postgres as Server;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, Postgres, Transaction};
use tokio::sync::Notify;

use super::{Bank, Failure, Then, effect, pay};

/// The same as [`pay`], with a second attempt.
#[idempotent(key = "order/{order}", scope = "bank.pay", store = store, transaction = tx)]
async fn pay_again(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &str,
    then: Then,
) -> Result<u32, Failure> {
    effect(tx, order).await?;
    if let Then::Wait(begun, go_on) = then {
        begun.notify_one();
        go_on.notified().await;
    }
    Ok(7)
}

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
    let call = pay_again(&bank.store, &mut tx, "1", then);
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

#[tokio::test]
async fn a_connection_without_a_transaction_is_refused() {
    #[idempotent(key = "{order}", store = store, transaction = connection)]
    async fn pay(store: &PostgresStore, connection: &mut PgConnection, order: &str) -> Result<u32, Failure> {
        effect(connection, order).await?;
        Ok(1)
    }
    let bank = Bank::open().await;
    let mut connection = bank.pool.acquire().await.unwrap();
    let error = pay(&bank.store, &mut connection, "1").await.unwrap_err();
    assert_eq!(error.kind(), "configuration");
    assert!(error.to_string().contains("no transaction is open"), "{error}");
    let mut tx = connection.begin().await.unwrap();
    pay(&bank.store, &mut tx, "1").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), 1);
}

#[tokio::test]
async fn a_killed_server_forgets_what_was_not_committed_and_keeps_what_was() {
    let mut server = Server::start();
    let pool = PgPoolOptions::new().connect(&server.url()).await.unwrap();
    let store = PostgresStore::from_pool(&pool).await.unwrap();
    pool.execute("CREATE TABLE effects (id text NOT NULL)").await.unwrap();
    let mut kept = pool.begin().await.unwrap();
    pay(&store, &mut kept, "kept", Then::Return).await.unwrap();
    kept.commit().await.unwrap();
    let mut lost = pool.begin().await.unwrap();
    pay(&store, &mut lost, "lost", Then::Return).await.unwrap();
    server.server().kill();
    server.restart();
    assert!(lost.commit().await.is_err());
    assert_eq!(server.sql("select string_agg(id, ',') from effects"), "kept");
    assert_eq!(server.sql("select string_agg(key, ',') from idem_records_readable"), "order/kept");
}
