//! `MySqlStore` on a server that is killed, stopped or locked, and on tables of another program or a newer version.

use std::time::{Duration, Instant};

use idem_mysql::MySqlStore;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner, Renew, RenewAnswer};
use idem_runtime::{Store, StoreErrorKind};
use idem_test_servers::{MariaDb, until};
use sqlx::Executor as _;

use crate::support::{
    HOUR, builder, claim, completion, connected, grant, key, new_table, record, replayed, run, store,
};

/// The operation timeout of stores that wait for its end.
const TIME: Duration = Duration::from_secs(2);
/// Less than the default timeout, and as long as a busy machine may stop a thread on top of that one.
const BOUND: Duration = Duration::from_secs(5);
/// How long the tests wait for what must come to pass.
const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_survives_a_killed_server_and_the_store_finds_it_again() {
    let mut server = MariaDb::start();
    let store = store(&server.url()).await;
    let (owner, held) = grant(&store, "order").await;
    record(&store, "done", "kept").await;
    server.server().kill();
    server.restart();
    assert_eq!(replayed(&store, "done").await, Some(b"kept".to_vec()));
    let renewal = Renew::new(owner, held.fence, HOUR);
    assert_eq!(store.renew(&key("order"), &renewal).await.unwrap(), RenewAnswer::Held);
    let done = store.complete(&key("order"), &completion((owner, held), "late")).await;
    assert_eq!(done.unwrap(), CompleteAnswer::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_given_twice_while_the_server_is_killed_again_and_again() {
    let mut server = MariaDb::start();
    let url = server.url();
    let store = builder(&url).operation_timeout(Duration::from_secs(20)).connect().await.unwrap();
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for number in 0..60 {
                    let owner = Owner::random();
                    let name = format!("order {number}");
                    // The same owner repeats the claim until its outcome is known.
                    let answer = loop {
                        match store.claim(&key(&name), &claim(owner)).await {
                            Ok(answer) => break answer,
                            Err(error) => assert!(error.is_transient(), "{error}"),
                        }
                    };
                    if let ClaimAnswer::Granted(grant) = answer {
                        granted.push(name.clone());
                        let done = completion((owner, grant), "once");
                        while store.complete(&key(&name), &done).await.is_err() {}
                    }
                }
                granted
            })
        })
        .collect();
    for _ in 0..3 {
        // Kills the server during the work, as soon as it has committed something more.
        let commits = "show global status like 'Com_commit'";
        let before = server.sql(commits);
        until("it works", || {
            callers.iter().all(|caller| caller.is_finished()) || server.sql(commits) != before
        });
        server.server().kill();
        server.restart();
    }
    let mut granted = Vec::new();
    for caller in callers {
        granted.extend(caller.await.unwrap());
    }
    granted.sort();
    let count = granted.len();
    granted.dedup();
    assert_eq!((granted.len(), count), (60, 60));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminated_session_is_not_noticed_by_the_caller() {
    let server = MariaDb::start();
    run(&server, "create user service; grant all on idem.* to service");
    let store = store(&server.url().replace("root@", "service@")).await;
    for round in 0..5 {
        let name = format!("order {round}");
        let held = grant(&store, &name).await;
        run(&server, "kill user service");
        let done = store.complete(&key(&name), &completion(held, "done")).await;
        assert_eq!(done.unwrap(), CompleteAnswer::Done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_gone_is_unavailable_within_the_operation_timeout() {
    let mut server = MariaDb::start();
    let store = connected(&builder(&server.url()).operation_timeout(TIME)).await;
    server.server().kill();
    let mut kinds = Vec::new();
    // The time may end in the middle of a try, whose outcome is unknown then. Most tries end before.
    while kinds.last() != Some(&StoreErrorKind::Unavailable) {
        assert!(kinds.len() < 5, "{kinds:?}");
        let begin = Instant::now();
        let error = store.claim(&key("order"), &claim(Owner::random())).await.unwrap_err();
        assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
        kinds.push(error.kind());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_leaves_the_outcome_unknown_within_bounds() {
    let mut server = MariaDb::start();
    let store = connected(&builder(&server.url()).operation_timeout(TIME)).await;
    while store.claim(&key("warm"), &claim(Owner::random())).await.is_err() {}
    server.server().signal("-STOP");
    let begin = Instant::now();
    let owner = Owner::random();
    let error = store.claim(&key("order"), &claim(owner)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    server.server().signal("-CONT");
    // A repeated claim finds out the outcome, as soon as the server has caught up.
    let begin = Instant::now();
    let answer = loop {
        match store.claim(&key("order"), &claim(owner)).await {
            Ok(answer) => break answer,
            Err(error) => assert!(error.is_transient() && begin.elapsed() < PATIENCE, "{error}"),
        }
    };
    assert!(matches!(answer, ClaimAnswer::Granted(_)), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_locked_for_longer_than_an_operation_may_take_changes_nothing() {
    let server = MariaDb::start();
    let builder = MySqlStore::builder(&server.url()).table("slow");
    let store = builder.operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    let mut other = sqlx::MySqlPool::connect(&server.url()).await.unwrap().acquire().await.unwrap().detach();
    other.execute("LOCK TABLES slow WRITE").await.unwrap();
    let begin = Instant::now();
    let error = store.claim(&key("order"), &claim(Owner::random())).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    other.execute("UNLOCK TABLES").await.unwrap();
    assert_eq!(server.sql("select count(*) from slow"), "0");
    grant(&store, "order").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_free_connection_callers_get_through_as_soon_as_there_is_one() {
    let server = MariaDb::with(&["--max-connections=10", "--innodb-flush-log-at-trx-commit=2"]);
    let store = builder(&server.url()).connections(2).connect().await.unwrap();
    let mut taken = Vec::new();
    while let Ok(connection) = <sqlx::MySqlConnection as sqlx::Connection>::connect(&server.url()).await {
        taken.push(connection);
    }
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { grant(&store, "order").await }
    });
    for connection in taken {
        let _ = sqlx::Connection::close(connection).await;
    }
    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_no_record_is_reported_by_its_digest_and_never_run_over() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
    record(&store, "order 4711", "kept").await;
    run(&server, "create table kept as select * from spoilt");
    for change in [
        "state = 9",
        "fence = fence, on_crash = 7",
        "tombstone = 5, result = null",
        "tombstone = 0",
        "result = null",
        "completed_at = null",
        "steps = 3, state = 0, result = null, completed_at = null",
    ] {
        run(&server, &format!("update spoilt set {change}"));
        // A new store, because the first one may remember something about the record.
        let fresh = MySqlStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
        let error = fresh.get(&key("order 4711")).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{change}: {error}");
        let said = format!("{error:?} {error}");
        assert!(said.contains(&key("order 4711").digest().to_string()) && !said.contains("4711\""), "{said}");
        run(&server, "delete from spoilt; insert into spoilt select * from kept");
    }
    run(&server, "update spoilt set state = 9");
    assert!(fresh_claim_is_refused(&server).await);
    let operator = MySqlStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
    assert!(operator.forget(&key("order 4711")).await.unwrap());
    grant(&operator, "order 4711").await;
}

async fn fresh_claim_is_refused(server: &MariaDb) -> bool {
    let fresh = MySqlStore::builder(&server.url()).table("spoilt").connect().await.unwrap();
    let error = fresh.claim(&key("order 4711"), &claim(Owner::random())).await.unwrap_err();
    error.kind() == StoreErrorKind::CorruptRecord
}

#[tokio::test(flavor = "multi_thread")]
async fn of_operations_that_travel_together_only_the_one_that_is_refused_fails() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("checked").connections(1).connect().await.unwrap();
    run(&server, "alter table checked add check (octet_length(result) < 100)");
    let (first, good, bad) =
        (grant(&store, "first").await, grant(&store, "good").await, grant(&store, "bad").await);
    let keys = ["first", "good", "bad"].map(key);
    let requests = [completion(first, "small"), completion(good, "small"), completion(bad, vec![b'x'; 200])];
    let (first, good, bad) = tokio::join!(
        store.complete(&keys[0], &requests[0]),
        store.complete(&keys[1], &requests[1]),
        store.complete(&keys[2], &requests[2]),
    );
    assert_eq!((first.unwrap(), good.unwrap()), (CompleteAnswer::Done, CompleteAnswer::Done));
    let error = bad.unwrap_err();
    // The error does not contain the server's message, which shows the row.
    assert!(error.to_string().contains("4025") && !format!("{error:?}").contains("bad"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_writes_replays_results_and_refuses_the_rest() {
    let server = MariaDb::start();
    run(&server, "create user service; grant all on idem.* to service");
    let url = server.url().replace("root@", "service@");
    let table = new_table();
    let open = || MySqlStore::builder(&url).table(&table);
    let first = open().connect().await.unwrap();
    record(&first, "done", "kept").await;
    grant(&first, "in flight").await;
    run(&server, "set global read_only = on");
    let store = open().operation_timeout(Duration::from_secs(3)).connect().await.unwrap();
    for _ in 0..2 {
        assert_eq!(replayed(&store, "done").await, Some(b"kept".to_vec()));
    }
    for name in ["absent", "in flight"] {
        let error = store.claim(&key(name), &claim(Owner::random())).await.unwrap_err();
        assert!(error.is_transient(), "{name}: {error}");
    }
    let rows = format!("select count(*) from {table}");
    assert_eq!(server.sql(&rows), "2");
    run(&server, "set global read_only = off");
    grant(&store, "absent").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_on_a_server_that_serves_nobody_is_left() {
    let server = MariaDb::start();
    let store = MySqlStore::builder(&server.url()).table("evicted").connect().await.unwrap();
    run(&server, "create table sessions (id bigint primary key)");
    let mut other = sqlx::MySqlPool::connect(&server.url()).await.unwrap().acquire().await.unwrap().detach();
    for number in [1047, 3032] {
        let refuses = format!(
            "create or replace trigger refuses before insert on evicted for each row \
             if exists (select 1 from sessions where id = connection_id()) \
             then signal sqlstate '08S01' set mysql_errno = {number}, message_text = 'not ready'; end if"
        );
        other.execute(sqlx::AssertSqlSafe(refuses)).await.unwrap();
        for round in 0..20 {
            grant(&store, &format!("{number} before {round}")).await;
        }
        run(
            &server,
            "insert ignore into sessions select id from information_schema.processlist where user = 'root' and info is null",
        );
        for round in 0..20 {
            grant(&store, &format!("{number} after {round}")).await;
        }
        let own = other.fetch_one("select connection_id()").await.unwrap();
        let own: u64 = sqlx::Row::get(&own, 0);
        let stays = format!(
            "select count(*) from information_schema.processlist join sessions using (id) where id <> {own}"
        );
        let begin = Instant::now();
        tokio::task::block_in_place(|| until("every such session is closed", || server.sql(&stays) == "0"));
        // Long before the store closes what nobody uses.
        assert!(begin.elapsed() < PATIENCE, "{:?}", begin.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nothing_can_be_written_sessions_stay_within_their_bound_and_results_are_replayed() {
    let server = MariaDb::start();
    let (time, table, done) = (Duration::from_secs(1), new_table(), key("done before"));
    let open = || MySqlStore::builder(&server.url()).table(&table);
    record(&open().connect().await.unwrap(), "done before", "kept").await;
    let store = connected(&open().connections(3).operation_timeout(time)).await;
    while store.claim(&done, &claim(Owner::random())).await.is_err() {}
    let mut other = sqlx::MySqlPool::connect(&server.url()).await.unwrap().acquire().await.unwrap().detach();
    other.execute("FLUSH TABLES WITH READ LOCK").await.unwrap();
    let sessions = || -> usize {
        let counted = "select count(*) - 2 from information_schema.processlist where user = 'root'";
        server.sql(counted).parse().unwrap()
    };
    let end = Instant::now() + 8 * time;
    let callers: Vec<_> = (0..16)
        .map(|caller| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut round = 0;
                while Instant::now() < end {
                    round += 1;
                    let key = key(&format!("{caller} {round}"));
                    let refused = store.claim(&key, &claim(Owner::random())).await.unwrap_err();
                    assert!(refused.is_transient(), "{refused}");
                }
            })
        })
        .collect();
    let mut most = 0;
    while Instant::now() < end {
        let mut answer = store.claim(&done, &claim(Owner::random())).await;
        if answer.is_err() {
            // On a busy machine the time of one may be over too soon, but not that of two in a row.
            answer = store.claim(&done, &claim(Owner::random())).await;
        }
        assert!(matches!(answer, Ok(ClaimAnswer::Replay(_))), "{answer:?}");
        most = most.max(sessions());
    }
    for caller in callers {
        caller.await.unwrap();
    }
    // Three for each of the two runtimes, one in each that is being closed, and some that the server has not
    // ended yet.
    assert!(most <= 12, "{most}");
    other.execute("UNLOCK TABLES").await.unwrap();
    let begin = Instant::now();
    while let Err(error) = store.claim(&key("afterwards"), &claim(Owner::random())).await {
        assert!(begin.elapsed() < PATIENCE, "{error}");
    }
}
