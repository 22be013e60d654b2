//! `transaction = tx` on MariaDB: bodies that return, fail, panic, are dropped, and end the transaction
//! themselves.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use idem_macros::idempotent;
use idem_mysql::MySqlStore;
use idem_runtime as idem;
use idem_test_servers::MariaDb;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::pool::PoolConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySql, MySqlPool, Transaction};

use crate::support::{Failure, run};

/// What a body does after its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Return,
    Fail,
    FailForGood,
    Panic,
    Wait,
    Run(&'static str),
    /// Drops `times` nested `begin`s before the server answers them. Then succeeds if `returns`, and fails
    /// otherwise.
    Nests {
        times: u32,
        returns: bool,
    },
    /// Starts a nested `begin`, and waits for ever while the `begin` has no answer.
    NestsAndWaits,
}

struct Bank {
    server: MariaDb,
    pool: MySqlPool,
    store: MySqlStore,
}

impl Bank {
    async fn open() -> Self {
        Self::on(MariaDb::shared()).await
    }

    async fn on(server: MariaDb) -> Self {
        let pool = MySqlPoolOptions::new().max_connections(20).connect(&server.url()).await.unwrap();
        let store = MySqlStore::from_pool(&pool).await.unwrap();
        run(&server, "create table effects (id varchar(40) not null)");
        Self { server, pool, store }
    }

    fn effects(&self, id: &str) -> String {
        self.server.sql(&format!("select count(*) from effects where id = '{id}'"))
    }

    /// A connection whose transactions have this isolation level.
    async fn at_level(&self, level: &str) -> PoolConnection<MySql> {
        let mut connection = self.pool.acquire().await.unwrap();
        let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
        connection.execute(AssertSqlSafe(set)).await.unwrap();
        connection
    }

    /// A call in a new transaction, which is committed whatever the call returns.
    async fn called(&self, id: &str, then: Then) -> (Result<String, Failure>, Result<(), sqlx::Error>) {
        let mut tx = self.pool.begin().await.unwrap();
        let given = pay(self, &mut tx, id, then).await;
        (given, tx.commit().await)
    }
}

#[idempotent(
    key = "payment/{id}",
    scope = "bank.pay",
    store = bank.store,
    transaction = tx,
    terminal = |error| matches!(error, Failure::Final),
    crate = ::idem_runtime
)]
async fn pay(bank: &Bank, tx: &mut Transaction<'_, MySql>, id: &str, then: Then) -> Result<String, Failure> {
    sqlx::query("INSERT INTO effects VALUES (?)").bind(id).execute(&mut **tx).await?;
    match then {
        Then::Return => {}
        Then::Fail => return Err(Failure::Transient),
        Then::FailForGood => return Err(Failure::Final),
        Then::Panic => panic!("the body panics"),
        Then::Wait => std::future::pending().await,
        Then::Run(statement) => {
            tx.execute(statement).await?;
        }
        Then::Nests { times, returns } => {
            for _ in 0..times {
                // Repeats until a `begin` is dropped before its answer.
                while tx.begin().now_or_never().is_some() {}
            }
            if !returns {
                return Err(Failure::Transient);
            }
        }
        Then::NestsAndWaits => loop {
            let mut begin = tx.begin();
            if (&mut begin).now_or_never().is_none() {
                std::future::pending::<()>().await;
            }
        },
    }
    Ok(format!("paid {id}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_call_in_one_transaction_gets_the_result_of_the_first() {
    let bank = Bank::open().await;
    for (level, expected) in [("REPEATABLE READ", "1"), ("READ COMMITTED", "0"), ("SERIALIZABLE", "1")] {
        let mut connection = bank.at_level(level).await;
        let mut tx = connection.begin().await.unwrap();
        for id in ["a", "b"].map(|id| format!("{id} {level}")) {
            assert_eq!(pay(&bank, &mut tx, &id, Then::Return).await.unwrap(), format!("paid {id}"));
            // The body does not run again.
            assert_eq!(pay(&bank, &mut tx, &id, Then::Panic).await.unwrap(), format!("paid {id}"));
            // After a body that failed, the key is free in the same transaction.
            let again = format!("{id} again");
            let failed = pay(&bank, &mut tx, &again, Then::Fail).await;
            assert!(matches!(failed, Err(Failure::Transient)), "{failed:?}");
            assert_eq!(pay(&bank, &mut tx, &again, Then::Return).await.unwrap(), format!("paid {again}"));
            // For all other transactions the key is busy.
            let (busy, _) = bank.called(&id, Then::Panic).await;
            assert!(matches!(busy, Err(Failure::Idem(idem::Error::InFlight { .. }))), "{busy:?}");
        }
        let ended = if expected == "1" { tx.commit().await } else { tx.rollback().await };
        ended.unwrap();
        for id in ["a", "b"].map(|id| format!("{id} {level}")) {
            assert_eq!([bank.effects(&id), bank.effects(&format!("{id} again"))], [expected; 2], "{id}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_another_transaction_takes_first_is_in_flight_at_once() {
    // This server rolls back the whole transaction if a statement does not get a lock.
    let bank = Bank::on(MariaDb::fast(&["--innodb-rollback-on-timeout=ON"])).await;
    let mut first = bank.pool.begin().await.unwrap();
    let mut second = bank.pool.begin().await.unwrap();
    second.execute("INSERT INTO effects VALUES ('before')").await.unwrap();
    pay(&bank, &mut first, "1", Then::Return).await.unwrap();
    let refused = pay(&bank, &mut second, "1", Then::Panic).await;
    assert!(matches!(refused, Err(Failure::Idem(idem::Error::InFlight { .. }))), "{refused:?}");
    second.commit().await.unwrap();
    assert_eq!(bank.effects("before"), "1");
    first.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_fails_panics_or_is_dropped_leaves_no_effect_though_the_caller_commits() {
    let bank = Bank::open().await;
    for (id, then) in
        [("fails", Then::Fail), ("panics", Then::Panic), ("waits", Then::Wait), ("final", Then::FailForGood)]
    {
        let mut tx = bank.pool.begin().await.unwrap();
        // Long enough that the body begins to wait, even on a busy machine.
        let time = Duration::from_secs(3);
        let called =
            tokio::time::timeout(time, AssertUnwindSafe(pay(&bank, &mut tx, id, then)).catch_unwind());
        let called = called.await;
        assert!(!matches!(called, Ok(Ok(Ok(_)))), "{id}");
        // Later writes of the caller are committed as usual.
        tx.execute("INSERT INTO effects VALUES ('after')").await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!([bank.effects(id), bank.effects("after")], ["0", "1"], "{id}");
        run(&bank.server, "delete from effects");
        // A terminal error is recorded.
        let (again, _) = bank.called(id, Then::Return).await;
        assert_eq!(matches!(again, Err(Failure::Final)), then == Then::FailForGood, "{id}: {again:?}");
        assert_eq!(bank.effects(id), if then == Then::FailForGood { "0" } else { "1" }, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_ends_the_transaction_is_an_error_and_what_follows_cannot_be_committed() {
    let bank = Bank::open().await;
    for (number, statement) in [
        "COMMIT",
        "ROLLBACK",
        "CREATE TABLE IF NOT EXISTS made (x int)",
        "COMMIT; BEGIN",
        // The same happens in a body that continues after a deadlock.
        "ROLLBACK; INSERT INTO effects VALUES ('again')",
    ]
    .into_iter()
    .enumerate()
    {
        let id = number.to_string();
        let (given, committed) = bank.called(&id, Then::Run(statement)).await;
        assert!(matches!(given, Err(Failure::Idem(_))), "{statement}: {given:?}");
        assert!(committed.is_err(), "{statement}");
        assert_eq!(bank.server.sql("select count(*) from idem_records"), "0", "{statement}");
    }
    // After the end of a transaction, the server commits each statement by itself.
    assert_eq!([bank.effects("1"), bank.effects("4"), bank.effects("again")], ["0", "0", "1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_begin_that_a_body_drops_costs_all_of_the_callers_writes_or_none() {
    let bank = Bank::open().await;
    for (times, returns, is_nested, commits) in
        [(1, true, false, true), (2, false, false, false), (1, false, true, true), (2, true, true, false)]
    {
        let id = format!("{times} {returns} {is_nested} {commits}");
        let write = |word: &str| format!("INSERT INTO effects VALUES ('{word} {id}')");
        let mut tx = bank.pool.begin().await.unwrap();
        tx.execute(AssertSqlSafe(write("before"))).await.unwrap();
        let then = Then::Nests { times, returns };
        let result = if is_nested {
            let mut own = tx.begin().await.unwrap();
            let result = pay(&bank, &mut own, &id, then).await;
            let _ = own.commit().await;
            result
        } else {
            pay(&bank, &mut tx, &id, then).await
        };
        let is_as_expected = match &result {
            Err(Failure::Idem(idem::Error::NotRecorded { .. })) => returns,
            result => matches!(result, Err(Failure::Transient)) && !returns,
        };
        assert!(is_as_expected, "{id}: {result:?}");
        assert!(tx.execute(AssertSqlSafe(write("after"))).await.is_err(), "{id}");
        let ended = if commits { tx.commit().await } else { tx.rollback().await };
        assert!(ended.is_err(), "{id}");
        assert_eq!(bank.server.sql("select count(*) from effects"), "0", "{id}");
        assert_eq!(bank.server.sql("select count(*) from idem_records"), "0", "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_dropped_in_a_nested_begin_leaves_the_callers_writes() {
    let bank = Bank::open().await;
    let mut tx = bank.pool.begin().await.unwrap();
    tx.execute("INSERT INTO effects VALUES ('before')").await.unwrap();
    let time = Duration::from_secs(3);
    assert!(tokio::time::timeout(time, pay(&bank, &mut tx, "1", Then::NestsAndWaits)).await.is_err());
    tx.execute("INSERT INTO effects VALUES ('after')").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(bank.server.sql("select count(*) from effects"), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn at_every_isolation_level_each_effect_is_there_once_however_many_try() {
    let bank = Arc::new(Bank::open().await);
    for level in ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
        let callers = (0..6).map(|_| {
            let bank = bank.clone();
            tokio::spawn(async move {
                let mut connection = bank.at_level(level).await;
                let mut ids: Vec<String> = (0..10).map(|number| format!("{level} {number}")).collect();
                while let Some(id) = ids.pop() {
                    let mut tx = connection.begin().await.unwrap();
                    if level != "SERIALIZABLE" {
                        // Takes the snapshot now, before other transactions commit. A duplicate gets the
                        // result although its snapshot does not show the record.
                        tx.fetch_all("SELECT * FROM effects").await.unwrap();
                    }
                    match pay(&bank, &mut tx, &id, Then::Return).await {
                        Err(Failure::Idem(idem::Error::InFlight { .. })) => ids.push(id),
                        result => assert_eq!(result.unwrap(), format!("paid {id}")),
                    }
                    tx.commit().await.unwrap();
                }
            })
        });
        futures_util::future::try_join_all(callers).await.unwrap();
        for number in 0..10 {
            assert_eq!(bank.effects(&format!("{level} {number}")), "1", "{level}");
        }
    }
}
