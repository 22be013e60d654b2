//! The store's use of the server and of the network: locks, bytes, reads of topics, exclusive locks.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idem_core::transaction::{RecordsIn as _, Taking};
use idem_postgres::PostgresStore;
use idem_runtime::Store;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, OnCrash, Owner, Release, ReleaseCause, State, StoredResult,
    Verdict,
};
use idem_test_servers::Postgres;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::outbox_support::{Bed, Broker, Running, wait_for_sql};
use crate::support::*;

/// Longer than many operations at once take on a busy machine.
const MINUTE: Duration = Duration::from_secs(60);

/// Makes a table `seen` of the advisory locks that each insertion of the store holds just before its commit.
fn count_locks(server: &Postgres, table: &str) {
    let _ = server.sql(
        "create table seen (locks bigint); \
         create function count_locks() returns trigger language plpgsql as $$ begin \
         insert into seen select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid(); \
         return null; end $$",
    );
    let _ = server.sql(&format!(
        "create trigger counted after insert on {table} for each statement execute function count_locks()"
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_finds_the_key_of_a_transaction_and_takes_few_locks_at_a_time() {
    let server = Postgres::shared();
    let table = new_table();
    let open = || PostgresStore::builder(&server.url()).table(&table).connect();
    let (store, other) = (open().await.unwrap(), open().await.unwrap());
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let request = Claim::new(Owner::random(), HOUR, HOUR);
    let taking = store.take(&mut *tx, &key("taken"), &request).await.unwrap();
    assert!(matches!(taking, Taking::Taken(_)));
    // A key with a record that others may claim, too.
    let Ok(ClaimAnswer::Granted(grant)) = store.claim(&key("released"), &request).await else { panic!() };
    let release = Release::new(request.owner, grant.fence, ReleaseCause::Failed);
    store.release(&key("released"), &release).await.unwrap();
    let again = Claim::new(Owner::random(), HOUR, HOUR);
    let taking = store.take(&mut *tx, &key("released"), &again).await.unwrap();
    assert!(matches!(taking, Taking::Taken(_)), "{taking:?}");
    let answer = claimed(&open().await.unwrap(), "released").await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
    let record = store.get(&key("released")).await.unwrap().unwrap();
    assert_eq!(record.state, State::Released, "and leaves the record as it was");
    // A process that knows of no transaction yet.
    let stranger = open().await.unwrap();
    let answer = claimed(&stranger, "taken").await.unwrap();
    assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
    // Another process, with many claims in one batch.
    count_locks(&server, &table);
    let claims = (0..300).map(|number| {
        let (other, name) =
            (&other, if number == 150 { "taken".to_owned() } else { format!("order {number}") });
        async move { claimed(other, &name).await.unwrap() }
    });
    let answers = join_all(claims).await;
    for (number, answer) in answers.into_iter().enumerate() {
        assert_eq!(matches!(answer, ClaimAnswer::Busy { .. }), number == 150, "{number}: {answer:?}");
    }
    let max_locks: u32 = server.sql("select max(locks) from seen").parse().unwrap();
    assert!((1..=64).contains(&max_locks), "{max_locks} locks at a time");
    tx.rollback().await.unwrap();
    assert!(matches!(claimed(&other, "taken").await.unwrap(), ClaimAnswer::Granted(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_holds_what_it_takes_over_and_no_key_that_it_is_refused() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table(new_table()).connect().await.unwrap();
    let owner = Owner::random();
    let answer = store.claim(&key("later"), &Claim::new(owner, HOUR, HOUR)).await.unwrap();
    let ClaimAnswer::Granted(grant) = answer else { panic!("{answer:?}") };
    let release = Release::new(owner, grant.fence, ReleaseCause::Failed).with_retry_after(HOUR);
    store.release(&key("later"), &release).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let request = Claim::new(Owner::random(), HOUR, HOUR);
    let refused = store.take(&mut *tx, &key("later"), &request).await.unwrap();
    assert!(matches!(refused, Taking::Refused(ClaimAnswer::RetryAt { .. })), "{refused:?}");
    let doubted = Claim::new(Owner::random(), HOUR, HOUR).with_on_crash(OnCrash::InDoubt);
    let ClaimAnswer::Granted(grant) = store.claim(&key("doubt"), &doubted).await.unwrap() else { panic!() };
    let release = Release::new(doubted.owner, grant.fence, ReleaseCause::Doubtful);
    store.release(&key("doubt"), &release).await.unwrap();
    let refused = store.take(&mut *tx, &key("doubt"), &request).await.unwrap();
    assert!(matches!(refused, Taking::Refused(_)), "{refused:?}");
    let locks = "select count(*) from pg_locks join pg_database on oid = database \
                 where locktype = 'advisory' and datname = current_database()";
    assert_eq!(server.sql(locks), "0");
    let lapsed = Claim::new(Owner::random(), Duration::from_micros(1), HOUR);
    store.claim(&key("lapsed"), &lapsed).await.unwrap();
    let taking = store.take(&mut *tx, &key("lapsed"), &request).await.unwrap();
    assert!(matches!(taking, Taking::Taken(_)), "{taking:?}");
    assert_eq!(server.sql(locks), "1", "what it takes over it holds");
}

// On one thread, so that both claims are in one batch.
#[tokio::test]
async fn the_fence_of_a_claim_behind_one_that_waited_is_of_the_moment_at_which_it_was_granted() {
    let server = Postgres::shared();
    // So that the first claim waits for as long as the test takes.
    let builder = PostgresStore::builder(&server.url()).table("slow").operation_timeout(MINUTE);
    let open = || builder.clone().lock_timeout(MINUTE).connect();
    let maker = open().await.unwrap();
    for name in ["first", "second"] {
        claimed(&maker, name).await.unwrap();
    }
    let _ = server.sql("create table kept as select * from slow where key = 'first'; delete from slow");
    // Once with the statement for keys that the process knows, and once with that for others.
    for store in [maker, open().await.unwrap()] {
        let mut other = PgConnection::connect(&server.url()).await.unwrap();
        let mut uncommitted = other.begin().await.unwrap();
        uncommitted.execute("INSERT INTO slow SELECT * FROM kept").await.unwrap();
        let waiting =
            tokio::spawn(
                async move { join_all(["first", "second"].map(|name| claimed(&store, name))).await },
            );
        let waits = "select count(*) from pg_stat_activity \
                     where wait_event_type = 'Lock' and query like '%slow%' and datname = current_database()";
        wait_for_sql(&server, waits, "1").await;
        let granted_from = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint";
        let granted_from: u64 = server.sql(granted_from).parse().unwrap();
        uncommitted.rollback().await.unwrap();
        let answers = waiting.await.unwrap();
        let Ok(ClaimAnswer::Granted(grant)) = answers[1] else { panic!("{answers:?}") };
        assert!(grant.fence.get() >= granted_from, "{} before {granted_from}", grant.fence);
        let _ = server.sql("delete from slow");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hot_result_travels_once_a_batch() {
    let server = Postgres::shared();
    let (meter, url) = metered(server.port(), &server.url()).await;
    let store = builder(&url).connections(1).connect().await.unwrap();
    record(&store, "hot", noise(1 << 20)).await;
    let (_, before) = meter.now();
    let answers = join_all((0..200).map(|_| claimed(&store, "hot"))).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_)))));
    let passed = (meter.now().1 - before) >> 20;
    assert!(passed <= 12, "{passed} MiB for 200 replays of one result of 1 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_are_read_a_few_at_a_time_and_hold_up_no_other_call_for_long() {
    let server = Postgres::shared();
    let (meter, url) = metered(server.port(), &server.url()).await;
    let table = new_table();
    let open =
        || PostgresStore::builder(&url).table(&table).connections(1).operation_timeout(MINUTE).connect();
    let store = open().await.unwrap();
    for number in 0..40 {
        record(&store, &format!("large {number}"), noise(2 << 20)).await;
    }
    // Another process does not know the results and their sizes.
    let fresh = open().await.unwrap();
    for round in [&fresh, &store] {
        let (before, _) = meter.now();
        let answers =
            join_all((0..40).map(|number| async move { claimed(round, &format!("large {number}")).await }))
                .await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_)))), "{answers:?}");
        // Each result is larger than a statement may carry, so each comes alone.
        let exchanges = meter.now().0 - before;
        assert!(exchanges >= 40, "80 MiB in {exchanges} exchanges");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_a_topic_does_not_walk_through_all_of_them() {
    const TOPICS: usize = 500;
    let bed = Bed::open().await;
    bed.sql(&format!(
        "insert into idem_outbox (id, topic, payload, enqueued_at) \
         select 'id-' || n, 'customer ' || n, 'x', 0 from generate_series(1, {TOPICS}) n"
    ));
    bed.sql("analyze idem_outbox");
    let broker = Broker::willing();
    let relay = Running::start(bed.relay(broker.clone()));
    broker.until_taken(TOPICS).await;
    relay.stop().await;
    let mut topics: Vec<_> = broker.taken().into_iter().map(|seen| seen.topic).collect();
    topics.sort();
    topics.dedup();
    assert_eq!(topics.len(), TOPICS);
    let scans = "select idx_scan from pg_stat_user_indexes where indexrelname = 'idem_outbox_pending'";
    let begin = Instant::now();
    let mut probes = 0;
    // A session reports its counters when it ends.
    while probes == 0 && begin.elapsed() < Duration::from_secs(10) {
        probes = bed.server.sql(scans).parse().unwrap();
    }
    assert!(probes / TOPICS < 150, "{} looks into the index for each topic", probes / TOPICS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_records_though_the_expired_record_before_it_was_purged_meanwhile() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("daily").connect().await.unwrap();
    for purged in [true, false] {
        record(&store, "job", b"yesterday".to_vec()).await;
        let _ = server.sql("update daily set expires_at = 1, purge_at = 1");
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let owner = Owner::random();
        let taking = store.take(&mut *tx, &key("job"), &Claim::new(owner, HOUR, HOUR)).await.unwrap();
        let Taking::Taken(taken) = taking else { panic!("{taking:?}") };
        if purged {
            assert_eq!(store.purge(10).await.unwrap(), 1);
        }
        let result = StoredResult::Value(b"today".to_vec().into());
        let request = Complete::new(owner, taken.grant.fence, Verdict::Completed, result, HOUR);
        let recorded = store.record(&mut *tx, &key("job"), &taken, &request).await.unwrap();
        assert_eq!(recorded, CompleteAnswer::Done);
        tx.commit().await.unwrap();
        assert!(matches!(claimed(&store, "job").await.unwrap(), ClaimAnswer::Replay(_)));
        let _ = server.sql("delete from daily");
    }
}
