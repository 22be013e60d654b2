//! Tests of `transaction = tx`: the caller's commit writes claim, effects and result together.

use std::future::poll_fn;
use std::ops::{Deref, DerefMut};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem::protocol::{Claim, ClaimAnswer, Complete, CompleteAnswer, Owner, StoredResult, Verdict};
use idem::{Key, Operation, PostgresStore, RecordKey, Scope, Store as _, idempotent};
use idem_test_servers::Postgres as Server;
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPoolOptions};
use sqlx::{Connection as _, Executor as _, PgPool, Postgres, Transaction};
use tokio::sync::Notify;

/// The error of a user's function.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
enum Failure {
    #[error("try again")]
    Transient,
    #[error("never again")]
    Final,
    #[error("{0}")]
    Sql(String),
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error.to_string())
    }
}

impl Failure {
    fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            Self::Transient | Self::Final => "body",
            Self::Sql(_) => "sql",
        }
    }

    fn is_final(&self) -> bool {
        matches!(self, Self::Final)
    }
}

/// What a body does after its effect.
#[derive(Clone, Default)]
enum Then {
    #[default]
    Return,
    Fail(bool),
    Panic,
    /// Reports that it has begun, and waits.
    Wait(Arc<Notify>, Arc<Notify>),
    /// Runs a statement and ignores its result.
    Run(&'static str),
}

struct Bank {
    server: Server,
    pool: PgPool,
    store: PostgresStore,
}

impl Bank {
    async fn open() -> Arc<Self> {
        let server = Server::start();
        let pool = PgPoolOptions::new().max_connections(20).connect(&server.url()).await.unwrap();
        let store = PostgresStore::from_pool(&pool).await.unwrap();
        pool.execute("CREATE TABLE effects (id text NOT NULL)").await.unwrap();
        Arc::new(Self { server, pool, store })
    }

    async fn begin(&self) -> Transaction<'static, Postgres> {
        self.pool.begin().await.unwrap()
    }

    fn effects(&self) -> usize {
        self.server.sql("select count(*) from effects").parse().unwrap()
    }

    fn records(&self) -> String {
        self.server.sql("select string_agg(state, ',') from idem_records_readable")
    }

    /// A call in a transaction that is committed.
    async fn pay(&self, order: &str) -> Result<u32, Failure> {
        let mut tx = self.begin().await;
        let paid = pay(&self.store, &mut tx, order, Then::Return).await?;
        tx.commit().await?;
        Ok(paid)
    }
}

async fn effect(connection: &mut PgConnection, order: &str) -> Result<(), Failure> {
    sqlx::query("INSERT INTO effects VALUES ($1)").bind(order).execute(connection).await?;
    Ok(())
}

#[idempotent(
    key = "order/{order}", scope = "bank.pay", store = store, transaction = tx, terminal = Failure::is_final
)]
async fn pay(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &str,
    then: Then,
) -> Result<u32, Failure> {
    assert_eq!(idem::context().unwrap().attempt(), 1);
    effect(tx, order).await?;
    match then {
        Then::Return => {}
        Then::Fail(false) => return Err(Failure::Transient),
        Then::Fail(true) => return Err(Failure::Final),
        Then::Panic => panic!("the body panics"),
        Then::Wait(begun, go_on) => {
            begun.notify_one();
            go_on.notified().await;
        }
        Then::Run(statement) => drop(tx.execute(statement).await),
    }
    Ok(7)
}

#[idempotent(
    key = "order/{order}", scope = "bank.pay", store = store, transaction = tx, wait = "20s",
    terminal = Failure::is_final
)]
async fn pay_patiently(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &str,
) -> Result<u32, Failure> {
    effect(tx, order).await?;
    Ok(8)
}

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
async fn effect_and_result_are_there_once_after_the_commit_and_neither_before() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    assert_eq!(pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap(), 7);
    assert_eq!((bank.effects(), bank.records().as_str()), (0, ""));
    // Within the transaction the call is complete.
    assert_eq!(pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap(), 7);
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (1, "completed"));
    for _ in 0..3 {
        let (paid, how) = observed(&bank, "1").await;
        assert_eq!(paid.unwrap(), 7);
        assert!(how.is_some_and(|how| matches!(how, idem::Outcome::Replayed { .. })), "{how:?}");
    }
    assert_eq!(bank.effects(), 1);
}

async fn observed(bank: &Bank, order: &str) -> (Result<u32, Failure>, Option<idem::Outcome>) {
    let observed = idem::observe(bank.pay(order)).await;
    (observed.value, observed.outcome)
}

#[tokio::test]
async fn a_rollback_leaves_nothing_and_the_next_call_runs() {
    let bank = Bank::open().await;
    for drop_it in [false, true] {
        let mut tx = bank.begin().await;
        pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap();
        if drop_it {
            drop(tx);
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!((bank.effects(), bank.records().as_str()), (0, ""));
    }
    // The dropped transaction is rolled back as soon as the pool has its connection again.
    let mut tx = bank.begin().await;
    assert_eq!(pay_patiently(&bank.store, &mut tx, "1").await.unwrap(), 8);
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), 1);
}

#[tokio::test]
async fn a_duplicate_of_an_uncommitted_call_is_in_flight_at_once() {
    let bank = Bank::open().await;
    let mut first = bank.begin().await;
    pay(&bank.store, &mut first, "1", Then::Return).await.unwrap();
    let mut second = bank.begin().await;
    let again = pay(&bank.store, &mut second, "1", Then::Return);
    let again = tokio::time::timeout(Duration::from_secs(5), again).await.expect("it does not wait");
    assert_eq!(again.unwrap_err().kind(), "in_flight");
    // Another key is not affected, and the refusal leaves the transaction usable.
    pay(&bank.store, &mut second, "2", Then::Return).await.unwrap();
    second.commit().await.unwrap();
    first.commit().await.unwrap();
    assert_eq!(bank.effects(), 2);
}

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

#[tokio::test]
async fn a_body_that_fails_leaves_nothing_behind_though_the_caller_commits() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    effect(&mut tx, "the caller's").await.unwrap();
    let error = pay(&bank.store, &mut tx, "1", Then::Fail(false)).await.unwrap_err();
    assert!(matches!(error, Failure::Transient));
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (1, ""));
    assert_eq!(bank.pay("1").await.unwrap(), 7);
    assert_eq!(bank.effects(), 2);
}

#[tokio::test]
async fn a_terminal_error_keeps_its_record_but_not_its_effects() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let error = pay(&bank.store, &mut tx, "1", Then::Fail(true)).await.unwrap_err();
    assert!(error.is_final());
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (0, "failed"));
    assert!(bank.pay("1").await.unwrap_err().is_final());
    assert_eq!(bank.effects(), 0);
}

#[tokio::test]
async fn a_panic_leaves_nothing_behind_though_the_caller_commits() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let call = AssertUnwindSafe(pay(&bank.store, &mut tx, "1", Then::Panic)).catch_unwind();
    assert!(call.await.is_err());
    effect(&mut tx, "the caller's").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((bank.effects(), bank.records().as_str()), (1, ""));
}

#[tokio::test]
async fn a_call_that_is_dropped_at_any_point_leaves_nothing_or_all_though_the_caller_commits() {
    let bank = Bank::open().await;
    let (mut whole, mut going_on) = (0, 0);
    for polls in 0..60 {
        let order = format!("{polls}");
        let mut tx = bank.begin().await;
        let finished = {
            let mut call = pin!(pay(&bank.store, &mut tx, &order, Then::Return));
            let mut left = polls;
            poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(false);
                }
                left -= 1;
                call.as_mut().poll(cx).map(|paid| paid.is_ok())
            })
            .await
        };
        // What the caller does next in its transaction is committed, unless the call was cancelled while it was ending,
        // which makes the transaction unusable.
        let own = format!("own {polls}");
        let goes_on = effect(&mut tx, &own).await.is_ok();
        let committed = tx.commit().await.is_ok();
        let owned = bank.server.sql(&format!("delete from effects where id = '{own}' returning 1"));
        assert_eq!(goes_on && committed, owned == "1", "after {polls} polls");
        going_on += usize::from(goes_on);
        let effects = format!("select count(*) from effects where id = '{order}'");
        let records = format!("select count(*) from idem_records_readable where key like 'order/{order}'");
        let (effects, records) = (bank.server.sql(&effects), bank.server.sql(&records));
        assert_eq!(effects, records, "after {polls} polls");
        assert!(!finished || effects == "1", "after {polls} polls");
        whole += usize::from(finished);
        assert_eq!(bank.pay(&order).await.unwrap(), 7, "after {polls} polls");
    }
    assert!(whole > 0 && whole < 60 && going_on > 50, "{whole} {going_on}");
    assert_eq!(bank.effects(), 60);
}

#[tokio::test]
async fn a_call_that_is_dropped_while_it_is_undone_leaves_the_connection_sound() {
    let bank = Bank::open().await;
    // One connection, so that the next caller gets the same one.
    let pool = PgPoolOptions::new().max_connections(1).connect(&bank.server.url()).await.unwrap();
    let mut broken_off = 0;
    for (kind, then) in [Then::Fail(false), Then::Fail(true), Then::Panic].into_iter().enumerate() {
        for polls in 0..40 {
            let order = format!("{kind}-{polls}");
            let mut tx = pool.begin().await.unwrap();
            let ended = {
                let call = AssertUnwindSafe(pay(&bank.store, &mut tx, &order, then.clone())).catch_unwind();
                let mut call = pin!(call);
                let mut left = polls;
                poll_fn(|cx| {
                    if left == 0 {
                        return Poll::Ready(false);
                    }
                    left -= 1;
                    call.as_mut().poll(cx).map(|_| true)
                })
                .await
            };
            broken_off += usize::from(!ended && polls > 0);
            drop(tx);
            let next = format!("after {order}");
            let mut tx = pool.begin().await.unwrap();
            effect(&mut tx, &next).await.unwrap();
            tx.commit().await.unwrap();
            let there = bank.server.sql(&format!("select count(*) from effects where id = '{next}'"));
            assert_eq!(there, "1", "{next}");
        }
    }
    // The number of polls of a call depends on the machine: an answer may arrive before the first poll.
    assert!(broken_off > 0);
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
async fn a_body_that_ends_the_transaction_itself_is_not_recorded() {
    let bank = Bank::open().await;
    for statement in ["ROLLBACK", "COMMIT", "ROLLBACK AND CHAIN", "COMMIT AND CHAIN"] {
        let mut tx = bank.begin().await;
        let error = pay(&bank.store, &mut tx, statement, Then::Run(statement)).await.unwrap_err();
        assert_eq!(error.kind(), "not_recorded", "{statement}");
        let _ = tx.commit().await;
        let records = bank.server.sql("select count(*) from idem_records");
        assert_eq!(records, "0", "{statement}");
        // The pool's connection is still usable.
        assert!(!bank.pool.acquire().await.unwrap().is_in_transaction());
    }
}

#[tokio::test]
async fn an_error_of_the_server_that_the_body_swallows_leaves_nothing() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    let error = pay(&bank.store, &mut tx, "1", Then::Run("SELECT 1/0")).await.unwrap_err();
    assert_eq!(error.kind(), "not_recorded");
    let _ = tx.commit().await;
    assert_eq!((bank.effects(), bank.records().as_str()), (0, ""));
    assert_eq!(bank.pay("1").await.unwrap(), 7);
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
async fn a_session_or_server_that_ends_in_the_midst_leaves_nothing() {
    let bank = Bank::open().await;
    for order in ["1", "2"] {
        let statement = "SELECT pg_terminate_backend(pg_backend_pid())";
        let mut tx = bank.begin().await;
        let error = pay(&bank.store, &mut tx, order, Then::Run(statement)).await.unwrap_err();
        assert_eq!(error.kind(), "not_recorded");
        drop(tx);
        assert_eq!((bank.effects(), bank.records().as_str()), (0, ""));
    }
    assert_eq!(bank.pay("1").await.unwrap(), 7);
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

/// A type of the user that holds a connection.
struct Unit<'c>(Transaction<'c, Postgres>);

impl<'c> Deref for Unit<'c> {
    type Target = Transaction<'c, Postgres>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Unit<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

#[idempotent(key = "{order}", scope = "bank.unit", store = store, transaction = unit)]
async fn pay_in_unit(store: PostgresStore, unit: &mut Unit<'_>, order: &str) -> Result<u32, idem::Error> {
    effect(unit, order).await.unwrap();
    Ok(1)
}

#[idempotent(key = "{order}", scope = "bank.pooled", store = store, transaction = pooled)]
async fn pay_pooled(
    store: &PostgresStore,
    pooled: &mut PoolConnection<Postgres>,
    order: &str,
) -> Result<u32, idem::Error> {
    effect(pooled, order).await.unwrap();
    Ok(2)
}

struct Till(PostgresStore);

impl Till {
    #[idempotent(key = "{order}", scope = "bank.generic", store = self.0, transaction = tx)]
    async fn pay<C: DerefMut<Target = PgConnection>>(
        &self,
        tx: &mut C,
        order: &str,
    ) -> Result<u32, idem::Error> {
        effect(tx, order).await.unwrap();
        Ok(3)
    }
}

#[tokio::test]
async fn whatever_gives_out_a_connection_carries_the_transaction() {
    let bank = Bank::open().await;
    let mut unit = Unit(bank.begin().await);
    assert_eq!(pay_in_unit(bank.store.clone(), &mut unit, "1").await.unwrap(), 1);
    unit.0.commit().await.unwrap();
    let mut tx = bank.begin().await;
    assert_eq!(Till(bank.store.clone()).pay(&mut tx, "1").await.unwrap(), 3);
    tx.commit().await.unwrap();
    let mut pooled = bank.pool.acquire().await.unwrap();
    assert!(pay_pooled(&bank.store, &mut pooled, "1").await.is_err());
    assert_eq!(bank.effects(), 2);
}

#[tokio::test]
async fn a_callers_own_savepoint_takes_the_call_along() {
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    {
        let mut inner = tx.begin().await.unwrap();
        pay(&bank.store, &mut inner, "1", Then::Return).await.unwrap();
        inner.rollback().await.unwrap();
    }
    {
        let mut inner = tx.begin().await.unwrap();
        pay(&bank.store, &mut inner, "2", Then::Return).await.unwrap();
        inner.commit().await.unwrap();
    }
    tx.commit().await.unwrap();
    assert_eq!(bank.server.sql("select string_agg(id, ',') from effects"), "2");
    assert_eq!(bank.server.sql("select string_agg(key, ',') from idem_records_readable"), "order/2");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_isolation_level_each_effect_is_there_once_however_many_try() {
    let bank = Bank::open().await;
    for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let callers: Vec<_> = (0..8)
            .map(|caller| {
                let bank = bank.clone();
                tokio::spawn(async move {
                    for number in 0..40 {
                        let order = format!("{level} {number}");
                        let mut tries = caller + number;
                        loop {
                            let begin = format!("BEGIN ISOLATION LEVEL {level}");
                            let mut tx = bank.pool.begin_with(sqlx::AssertSqlSafe(begin)).await.unwrap();
                            let paid = pay(&bank.store, &mut tx, &order, Then::Return).await;
                            if level == "READ COMMITTED" {
                                // At this level a duplicate gets the result or `in_flight`, and never runs only to fail
                                // at its commit.
                                assert!(paid.as_ref().err().is_none_or(|error| error.kind() == "in_flight"));
                            }
                            tries += 1;
                            // Every third call that could commit rolls back.
                            if paid.is_ok() && tries % 3 == 0 {
                                tx.rollback().await.unwrap();
                            } else if paid.is_ok() && tx.commit().await.is_ok() {
                                break;
                            }
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    }
    assert_eq!(bank.effects(), 120);
    assert_eq!(bank.server.sql("select count(distinct id) from effects"), "120");
    assert_eq!(bank.server.sql("select count(*) from idem_records where state = 1"), "120");
}

#[tokio::test]
async fn a_result_that_is_too_large_is_a_tombstone_in_the_same_commit() {
    #[idempotent(key = "{order}", store = store, transaction = tx, max_result_bytes = 10)]
    async fn long(
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        order: &str,
    ) -> Result<String, Failure> {
        effect(tx, order).await?;
        Ok("long".repeat(10))
    }
    let bank = Bank::open().await;
    let mut tx = bank.begin().await;
    assert_eq!(long(&bank.store, &mut tx, "1").await.unwrap().len(), 40);
    tx.commit().await.unwrap();
    let mut tx = bank.begin().await;
    assert_eq!(long(&bank.store, &mut tx, "1").await.unwrap_err().kind(), "result_not_stored");
    assert_eq!(bank.effects(), 1);
}

#[tokio::test]
async fn other_arguments_under_one_key_and_a_released_record_are_judged_as_without_a_transaction() {
    #[idempotent(key = "{order}", scope = "judged", store = store, transaction = tx, fingerprint = amount)]
    async fn pay(
        store: &PostgresStore,
        tx: &mut Transaction<'_, Postgres>,
        order: &str,
        amount: u32,
    ) -> Result<u32, Failure> {
        effect(tx, order).await?;
        Ok(idem::context().unwrap().attempt())
    }
    let bank = Bank::open().await;
    // An attempt without a transaction failed and was released.
    let failed = Operation::new("judged").fingerprint(&5_u32);
    let failed = failed.run(&bank.store, "1", || async { Err::<u32, _>(Failure::Transient) }).await;
    assert!(matches!(failed, Err(Failure::Transient)));
    let mut tx = bank.begin().await;
    assert_eq!(pay(&bank.store, &mut tx, "1", 6).await.unwrap_err().kind(), "mismatch");
    assert_eq!(pay(&bank.store, &mut tx, "1", 5).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_eq!(bank.effects(), 1);
    let replayed = Operation::new("judged").run(&bank.store, "1", || async { Ok::<u32, Failure>(9) }).await;
    assert_eq!(replayed.unwrap(), 2);
}

#[idempotent(key = "{order}", scope = "bank.stepwise", store = store, transaction = tx)]
async fn pay_stepwise(
    store: &PostgresStore,
    tx: &mut Transaction<'_, Postgres>,
    order: &str,
) -> Result<u32, Failure> {
    // Using the same name twice would be an error for a step that is recorded.
    for _ in 0..2 {
        idem::step("charge", || async { effect(tx, order).await }).await?;
    }
    Ok(2)
}

#[tokio::test]
async fn a_step_in_a_transaction_runs_as_if_it_were_none() {
    let bank = Bank::open().await;
    for expected in [0, 2] {
        let mut tx = bank.begin().await;
        assert_eq!(pay_stepwise(&bank.store, &mut tx, "a").await.unwrap(), 2);
        if expected == 0 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
        }
        assert_eq!(bank.effects(), expected);
    }
}
