//! The cases that every driver must pass.

/// Expands to the cases, in a module that has `Tx`, `Client`, `run` and `commit` of its driver. `$open` opens
/// the bank, and `$own` says whether the caller's own writes are kept if the call is dropped.
macro_rules! cases {
    ($open:path, $own:literal) => {
        use std::panic::AssertUnwindSafe;
        use std::sync::Arc;

        use futures_util::FutureExt as _;
        use idem_postgres::PostgresStore;

        use crate::drivers::bank::{Bank, Failure, Then, idempotent, released};

        #[idempotent(
            key = "order/{order}", scope = "orders", store = store, transaction = tx,
            terminal = |error| matches!(error, Failure::Final), crate = ::idem_runtime
        )]
        async fn pay(
            store: &PostgresStore,
            tx: &mut Tx<'_>,
            order: &str,
            then: Then,
        ) -> Result<u32, Failure> {
            run(tx, &format!("INSERT INTO effects VALUES ('{order}')")).await?;
            match then {
                Then::Return => {}
                Then::Fail => return Err(Failure::Transient),
                Then::FailForGood => return Err(Failure::Final),
                Then::Panic => panic!("the body panics"),
                Then::Wait(begun) => {
                    begun.notify_one();
                    std::future::pending().await
                }
                Then::Run(statement) => drop(run(tx, statement).await),
            }
            Ok(7)
        }

        /// Begins a transaction, writes, calls `pay`, writes again, and commits. If the body waits, the call
        /// is dropped.
        async fn committed(bank: &Bank, order: &str, then: Then) -> Result<u32, Failure> {
            let mut client = Client::open(&bank.url()).await;
            let mut tx = client.begin().await;
            run(&mut tx, &format!("INSERT INTO effects VALUES ('before {order}')")).await.unwrap();
            let begun = if let Then::Wait(begun) = &then { begun.clone() } else { Arc::default() };
            let paid = tokio::select! {
                paid = AssertUnwindSafe(pay(&bank.store, &mut tx, order, then)).catch_unwind() => paid.ok(),
                () = begun.notified() => None,
            };
            run(&mut tx, &format!("INSERT INTO effects VALUES ('after {order}')")).await.unwrap();
            assert!(commit(tx).await);
            paid.unwrap_or(Err(Failure::Sql("the body did not end".to_owned())))
        }

        #[tokio::test]
        async fn effect_and_result_are_there_once_after_the_commit_and_neither_before() {
            let bank = $open().await;
            let mut client = Client::open(&bank.url()).await;
            let mut tx = client.begin().await;
            assert_eq!(pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap(), 7);
            assert_eq!(bank.counts(), "0|0");
            // The duplicate in the same transaction finds the result.
            assert_eq!(pay(&bank.store, &mut tx, "1", Then::Panic).await.unwrap(), 7);
            assert!(commit(tx).await);
            assert_eq!(bank.counts(), "1|1");
            let mut tx = client.begin().await;
            assert_eq!(pay(&bank.store, &mut tx, "1", Then::Panic).await.unwrap(), 7);
            assert!(commit(tx).await);
            assert_eq!(bank.counts(), "1|1");
        }

        #[tokio::test]
        async fn a_rollback_leaves_nothing_and_a_duplicate_before_it_is_in_flight() {
            let bank = $open().await;
            let (mut client, mut other) = (Client::open(&bank.url()).await, Client::open(&bank.url()).await);
            for _ in 0..2 {
                let mut tx = client.begin().await;
                assert_eq!(pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap(), 7);
                let mut another = other.begin().await;
                let error = pay(&bank.store, &mut another, "1", Then::Return).await.unwrap_err();
                assert_eq!(error.kind(), "in_flight");
                run(&mut another, "ROLLBACK").await.unwrap();
                let _ = commit(another).await;
                run(&mut tx, "ROLLBACK").await.unwrap();
                let _ = commit(tx).await;
                assert_eq!(bank.counts(), "0|0");
            }
        }

        #[tokio::test]
        async fn a_body_that_fails_panics_or_is_dropped_leaves_no_effect_and_the_callers_writes_stay() {
            let bank = $open().await;
            let waits = Then::Wait(Arc::default());
            for (order, then) in [("fails", Then::Fail), ("panics", Then::Panic), ("dropped", waits)] {
                committed(&bank, order, then).await.unwrap_err();
                assert_eq!(bank.of(order), "0|0");
                let own = format!("select count(*) from effects where id like '% {order}'");
                assert_eq!(bank.server.sql(&own), "2");
                assert_eq!(committed(&bank, order, Then::Return).await.unwrap(), 7);
                assert_eq!(bank.of(order), "1|1");
            }
            // A terminal error keeps its record.
            for _ in 0..2 {
                let error = committed(&bank, "final", Then::FailForGood).await.unwrap_err();
                assert!(matches!(error, Failure::Final));
                assert_eq!(bank.of("final"), "0|1");
            }
        }

        #[tokio::test]
        async fn a_body_whose_transaction_is_over_or_aborted_is_not_recorded() {
            let bank = $open().await;
            released(&bank.store, "order/4").await;
            for (order, statement) in [
                ("1", "COMMIT"),
                ("2", "ROLLBACK"),
                ("3", "ROLLBACK; BEGIN"),
                ("4", "COMMIT"),
                ("5", "SELECT 1 / 0"),
                ("6", "SELECT pg_terminate_backend(pg_backend_pid())"),
            ] {
                let mut client = Client::open(&bank.url()).await;
                let mut tx = client.begin().await;
                let error = pay(&bank.store, &mut tx, order, Then::Run(statement)).await.unwrap_err();
                assert_eq!(error.kind(), "not_recorded", "{statement}");
                run(&mut tx, "INSERT INTO effects VALUES ('after')").await.unwrap_err();
                let _ = commit(tx).await;
            }
            // The body's own commits stay.
            assert_eq!(bank.counts(), "2|1");
            assert_eq!(bank.server.sql("select state from idem_records"), "3", "the record of before is unchanged");
        }

        #[tokio::test]
        async fn a_callers_own_savepoint_takes_the_call_along() {
            let bank = $open().await;
            let mut client = Client::open(&bank.url()).await;
            let mut tx = client.begin().await;
            run(&mut tx, "SAVEPOINT own").await.unwrap();
            assert_eq!(pay(&bank.store, &mut tx, "1", Then::Return).await.unwrap(), 7);
            run(&mut tx, "ROLLBACK TO SAVEPOINT own").await.unwrap();
            assert_eq!(pay(&bank.store, &mut tx, "2", Then::Return).await.unwrap(), 7);
            assert!(commit(tx).await);
            assert_eq!([bank.of("1"), bank.of("2")], ["0|0", "1|1"]);
        }

        #[tokio::test]
        async fn a_message_is_there_with_the_commit_and_not_with_a_body_that_fails() {
            let bank = $open().await;
            let messages = || bank.server.sql("select string_agg(topic, ',') from idem_outbox");
            let mut client = Client::open(&bank.url()).await;
            for fails in [true, false] {
                let mut tx = client.begin().await;
                let sent = tell(&bank, &mut tx, "1", fails).await;
                assert_eq!(sent.is_err(), fails);
                assert_eq!(messages(), "");
                assert!(commit(tx).await);
                assert_eq!(messages(), if fails { "" } else { "orders" });
            }
        }

        #[idempotent(
            key = "order/{order}", scope = "bank.tell", store = bank.store, transaction = tx, crate = ::idem_runtime
        )]
        async fn tell(bank: &Bank, tx: &mut Tx<'_>, order: &str, fails: bool) -> Result<(), Failure> {
            bank.outbox.enqueue(tx, "orders", order).await.map_err(|error| Failure::Sql(error.to_string()))?;
            if fails { Err(Failure::Transient) } else { Ok(()) }
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn at_every_isolation_level_each_effect_is_there_once_however_many_try() {
            let bank = Arc::new($open().await);
            for level in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
                let callers = (0..4).map(|caller| {
                    let bank = bank.clone();
                    async move {
                        let mut client = Client::open(&bank.url()).await;
                        for number in 0..15 {
                            let order = format!("{level} {number}");
                            let mut tries = caller + number;
                            loop {
                                let mut tx = client.begin().await;
                                let isolation = format!("SET TRANSACTION ISOLATION LEVEL {level}");
                                run(&mut tx, &isolation).await.unwrap();
                                let paid = pay(&bank.store, &mut tx, &order, Then::Return).await;
                                if level == "READ COMMITTED" {
                                    assert!(paid.as_ref().err().is_none_or(|error| error.kind() == "in_flight"));
                                }
                                tries += 1;
                                // Every third call is rolled back instead of committed.
                                if paid.is_err() || tries % 3 == 0 {
                                    let _ = run(&mut tx, "ROLLBACK").await;
                                    let _ = commit(tx).await;
                                } else if commit(tx).await {
                                    break;
                                }
                            }
                        }
                    }
                });
                futures_util::future::join_all(callers).await;
            }
            assert_eq!(bank.counts(), "45|45");
            assert_eq!(bank.server.sql("select count(distinct id) from effects"), "45");
        }

        #[tokio::test]
        async fn a_call_that_is_dropped_at_any_point_leaves_nothing_or_all_though_the_caller_commits() {
            let bank = $open().await;
            let (mut whole, mut polls) = (0, 0);
            // Three calls that end are enough, because with more polls a call reaches no new point.
            while whole < 3 {
                assert!(polls < 100, "no call ends");
                let order = format!("{polls}");
                let mut client = Client::open(&bank.url()).await;
                let mut tx = client.begin().await;
                run(&mut tx, &format!("INSERT INTO effects VALUES ('before {order}')")).await.unwrap();
                let finished = {
                    let mut call = std::pin::pin!(pay(&bank.store, &mut tx, &order, Then::Return));
                    let mut left = polls;
                    std::future::poll_fn(|cx| {
                        if left == 0 {
                            return std::task::Poll::Ready(false);
                        }
                        left -= 1;
                        call.as_mut().poll(cx).map(|paid| paid.is_ok())
                    })
                    .await
                };
                let goes_on =
                    run(&mut tx, &format!("INSERT INTO effects VALUES ('after {order}')")).await.is_ok();
                let committed = commit(tx).await && goes_on;
                let own = |word: &str| {
                    bank.server.sql(&format!("select count(*) from effects where id = '{word} {order}'")) == "1"
                };
                if $own == "keeps what the caller wrote" {
                    assert_eq!((own("before"), own("after")), (committed, committed), "after {polls} polls");
                }
                let of = bank.of(&order);
                assert!(of == "1|1" || of == "0|0", "after {polls} polls: {of}");
                assert!(!finished || of == "1|1", "after {polls} polls");
                whole += usize::from(finished);
                polls += 1;
            }
        }
    };

    ($open:path, nested $($nested:ident)*) => {
        /// How a nested `begin` in a body goes wrong.
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "a driver that may lose the caller's writes has not all of them")]
        enum Nested {
            Fails,
            /// The future is dropped after one poll, when the statement is sent and has no answer yet.
            Dropped,
            /// The future is dropped together with the whole call.
            DroppedWithTheCall,
        }

        #[idempotent(
            key = "order/{order}", scope = "bank.nest", store = store, transaction = tx, crate = ::idem_runtime
        )]
        async fn nest(
            store: &PostgresStore,
            tx: &mut Tx<'_>,
            order: &str,
            nested: Nested,
            returns: bool,
        ) -> Result<u32, Failure> {
            run(tx, &format!("INSERT INTO effects VALUES ('{order}')")).await?;
            match nested {
                Nested::Fails => {
                    run(tx, "SELECT 1 / 0").await.unwrap_err();
                    assert!(tx.begin().await.is_err());
                }
                Nested::Dropped => while tx.begin().now_or_never().is_some() {},
                Nested::DroppedWithTheCall => loop {
                    let mut begin = tx.begin();
                    if (&mut begin).now_or_never().is_none() {
                        std::future::pending::<()>().await;
                    }
                },
            }
            if returns { Ok(7) } else { Err(Failure::Transient) }
        }

        #[tokio::test]
        async fn a_nested_begin_in_vain_costs_all_of_the_callers_writes_or_none() {
            let bank = $open().await;
            for nested in [$(Nested::$nested),*] {
                for (returns, is_nested, commits) in (0..8).map(|case| (case & 1 > 0, case & 2 > 0, case & 4 > 0)) {
                    let order = format!("{nested:?} {returns} {is_nested} {commits}");
                    let mut client = Client::open(&bank.url()).await;
                    let mut tx = client.begin().await;
                    run(&mut tx, &format!("INSERT INTO effects VALUES ('before {order}')")).await.unwrap();
                    let is_dropped = matches!(nested, Nested::DroppedWithTheCall);
                    let time = std::time::Duration::from_millis(if is_dropped { 300 } else { 30_000 });
                    let called = if is_nested {
                        let mut own = tx.begin().await.unwrap();
                        let call = nest(&bank.store, &mut own, &order, nested, returns);
                        let called = tokio::time::timeout(time, call).await;
                        let _ = own.commit().await;
                        called
                    } else {
                        tokio::time::timeout(time, nest(&bank.store, &mut tx, &order, nested, returns)).await
                    };
                    if let Ok(called) = called {
                        let kind = if returns { "not_recorded" } else { "body" };
                        assert_eq!(called.unwrap_err().kind(), kind, "{order}");
                    }
                    let after = format!("INSERT INTO effects VALUES ('after {order}')");
                    let goes_on = run(&mut tx, &after).await.is_ok();
                    let committed = commits && commit(tx).await && goes_on;
                    assert_eq!(bank.of(&order), "0|0", "{order}");
                    let own = ["before", "after"].map(|word| {
                        let own = format!("select count(*) from effects where id = '{word} {order}'");
                        bank.server.sql(&own) == "1"
                    });
                    assert_eq!(own, [committed; 2], "{order}");
                }
            }
        }
    };
}

pub(crate) use cases;
