//! Tests of `transaction = tx`: the caller's commit writes claim, effects and result together. Commits,
//! rollbacks and bodies that fail are among the cases of each driver, in `stores/postgres/tests/it/drivers`.
//! This file has the other tests: which values can be the transaction, and which settings cannot be combined
//! with it; a claim that is lost during the transaction; and a call that reads the record before another call
//! commits it.

use std::time::Duration;

use idem::protocol::{Claim, ClaimAnswer, CompleteAnswer, Owner};
use idem::{Key, Operation, Outcome, PostgresStore, RecordKey, Scope, Store as _, idempotent, observe};
use idem_test_servers::{Postgres as Server, until};
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnection;
use sqlx::{Executor as _, PgPool, Postgres, Transaction};

use crate::support::{Failure, completion};

type Tx<'t> = Transaction<'t, Postgres>;

impl From<sqlx::Error> for Failure {
    fn from(_: sqlx::Error) -> Self {
        Self::Transient
    }
}

struct Bank {
    server: Server,
    pool: PgPool,
    store: PostgresStore,
}

impl Bank {
    async fn open() -> Self {
        let server = Server::shared();
        let pool = PgPool::connect(&server.url()).await.unwrap();
        let store = PostgresStore::from_pool(&pool).await.unwrap();
        pool.execute("CREATE TABLE effects (id text NOT NULL)").await.unwrap();
        Self { server, pool, store }
    }

    async fn begin(&self) -> Tx<'static> {
        self.pool.begin().await.unwrap()
    }

    fn effects(&self) -> usize {
        self.server.sql("select count(*) from effects").parse().unwrap()
    }
}

async fn effect(connection: &mut PgConnection, order: &str) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects VALUES ($1)").bind(order).execute(connection).await?;
    Ok(())
}

#[idempotent(key = "order/{order}", scope = "bank.pay", store = store, transaction = tx)]
async fn pay(store: &PostgresStore, tx: &mut Tx<'_>, order: &str) -> Result<u32, Failure> {
    effect(tx, order).await?;
    Ok(7)
}

#[idempotent(key = "{order}", scope = "bank.boxed", store = store, transaction = tx)]
async fn pay_boxed(store: PostgresStore, tx: &mut Box<Tx<'_>>, order: &str) -> Result<u32, Failure> {
    effect(tx, order).await?;
    Ok(1)
}

#[idempotent(key = "{order}", scope = "bank.pooled", store = store, transaction = pooled)]
async fn pay_pooled(
    store: &PostgresStore,
    pooled: &mut PoolConnection<Postgres>,
    order: &str,
) -> Result<u32, Failure> {
    effect(pooled, order).await?;
    Ok(2)
}

#[tokio::test]
async fn whatever_gives_out_a_connection_carries_the_transaction_and_without_one_it_is_refused() {
    let bank = Bank::open().await;
    let mut tx = Box::new(bank.begin().await);
    assert_eq!(pay_boxed(bank.store.clone(), &mut tx, "1").await.unwrap(), 1);
    tx.commit().await.unwrap();
    let mut pooled = bank.pool.acquire().await.unwrap();
    assert_eq!(pay_pooled(&bank.store, &mut pooled, "1").await.unwrap_err().kind(), "configuration");
    assert_eq!(bank.effects(), 1);
}

#[tokio::test]
async fn what_cannot_go_with_a_transaction_is_refused_before_the_body() {
    let bank = Bank::open().await;
    let (pay, second) = (|| Operation::new("bank.pay"), Duration::from_secs(1));
    let body = async |tx: &mut Tx<'_>| {
        effect(tx, "paid").await?;
        Ok::<u32, Failure>(7)
    };
    for operation in
        [pay().fail_open(), pay().max_attempts(1), pay().timeout(second), pay().retry_after(second)]
    {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", body).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    let paced = [pay().record_if(|_| true), pay().retry_after_error(|_: &Failure, _| Duration::ZERO)];
    for operation in paced {
        let mut tx = bank.begin().await;
        let refused = operation.run_in_transaction(&bank.store, &mut tx, "1", body).await;
        assert_eq!(refused.unwrap_err().kind(), "configuration");
    }
    assert_eq!(bank.effects(), 0);
}

#[tokio::test]
async fn a_claim_that_is_lost_meanwhile_fails_the_call_and_the_transaction_cannot_commit() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    effect(&mut tx, "the caller's").await.unwrap();
    // A worker outside of transactions claimed the key. Its lease is over, but the worker still runs, and it
    // finishes before the transaction.
    let key = RecordKey::new(Scope::new("bank.pay").unwrap(), Key::new("order/1").unwrap());
    let owner = Owner::random();
    let claim = Claim::new(owner, Duration::from_millis(1), Duration::from_secs(60));
    let ClaimAnswer::Granted(grant) = bank.store.claim(&key, &claim).await.unwrap() else { panic!() };
    until("its lease is over", || {
        bank.server.sql("select lease_until < now() from idem_records_readable") == "t"
    });
    let body = async |tx: &mut Tx<'_>| {
        effect(tx, "1").await?;
        let answer = bank.store.complete(&key, &completion(owner, grant, "9")).await.unwrap();
        assert_eq!(answer, CompleteAnswer::Done);
        Ok::<u32, Failure>(7)
    };
    let paid =
        Operation::new("bank.pay").run_in_transaction(&bank.store, &mut tx, ("order", "1"), body).await;
    assert_eq!(paid.unwrap_err().kind(), "not_recorded");
    let after = effect(&mut tx, "after").await.unwrap_err();
    assert!(after.to_string().contains("aborted"), "{after}");
    let _ = tx.commit().await;
    assert_eq!(bank.effects(), 0);
    assert_eq!(pay(&bank.store, &mut bank.begin().await, "1").await.unwrap(), 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_looked_before_the_one_before_it_committed_looks_again_when_it_has_the_key() {
    let bank = Bank::open().await;
    // Replaces the function that locks a key, so that a call stops between reading the record and taking the
    // key.
    for statement in [
        "CREATE SCHEMA gated",
        "CREATE FUNCTION gated.pg_try_advisory_xact_lock(number bigint) RETURNS boolean LANGUAGE plpgsql VOLATILE AS \
         $$ BEGIN PERFORM pg_advisory_lock_shared(42); PERFORM pg_advisory_unlock_shared(42); \
         RETURN pg_catalog.pg_try_advisory_xact_lock(number); END $$",
    ] {
        bank.pool.execute(statement).await.unwrap();
    }
    let mut first = bank.begin().await;
    pay(&bank.store, &mut first, "1").await.unwrap();
    let mut gate = bank.begin().await;
    gate.execute("SELECT pg_advisory_xact_lock(42)").await.unwrap();
    let mut second = bank.begin().await;
    second.execute("SET LOCAL search_path = gated, pg_catalog, public").await.unwrap();
    let again = observe(pay(&bank.store, &mut second, "1"));
    let opening = async {
        let waits = "select count(*) from pg_stat_activity \
                     where wait_event = 'advisory' and datname = current_database()";
        let ending = async {
            while bank.server.sql(waits) != "1" {
                tokio::task::yield_now().await;
            }
            // The second call has read that there is no record.
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
