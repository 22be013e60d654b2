//! The store's use of the server and of the network: locks, bytes, and keys that callers' transactions hold.

use std::time::Duration;

use futures_util::future::join_all;
use idem_core::transaction::{RecordsIn as _, Taking};
use idem_postgres::PostgresStore;
use idem_runtime::Store;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, CompleteAnswer, OnCrash, Owner, Release, ReleaseCause, State,
};
use idem_test_servers::Postgres;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::support::*;

/// Longer than a busy machine needs for many operations at once.
const MINUTE: Duration = Duration::from_secs(60);

/// Creates a table `seen` and a trigger. For each `INSERT` of the store, the trigger writes to `seen` how
/// many advisory locks the session holds.
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

/// Takes the key in a transaction, for a new owner.
async fn take(store: &PostgresStore, connection: &mut PgConnection, name: &str) -> (Owner, Taking) {
    let owner = Owner::random();
    (owner, store.take(connection, &key(name), &claim(owner)).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_finds_the_key_of_a_transaction_and_takes_few_locks_at_a_time() {
    let server = Postgres::shared();
    let table = new_table();
    let open = || PostgresStore::builder(&server.url()).table(&table).connect();
    let (store, other) = (open().await.unwrap(), open().await.unwrap());
    // One of the keys has a record, which any owner may claim.
    released(&store, "released").await;
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    for name in ["taken", "released"] {
        let (_, taking) = take(&store, &mut tx, name).await;
        assert!(matches!(taking, Taking::Taken(_)), "{taking:?}");
        // A new store does not know yet that callers use transactions.
        let answer = claimed(&open().await.unwrap(), name).await.unwrap();
        assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{answer:?}");
    }
    let record = store.get(&key("released")).await.unwrap().unwrap();
    assert_eq!(record.state, State::Released, "the claim leaves the record as it was");
    // Another process makes many claims at once.
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
    let store = store(&server.url()).await;
    let (owner, held) = grant(&store, "later").await;
    let later = Release::new(owner, held.fence, ReleaseCause::Failed).with_retry_after(HOUR);
    store.release(&key("later"), &later).await.unwrap();
    let doubted = claim(Owner::random()).with_on_crash(OnCrash::InDoubt);
    let ClaimAnswer::Granted(grant) = store.claim(&key("doubt"), &doubted).await.unwrap() else { panic!() };
    let doubtful = Release::new(doubted.owner, grant.fence, ReleaseCause::Doubtful);
    store.release(&key("doubt"), &doubtful).await.unwrap();
    let lapsed = Claim::new(Owner::random(), Duration::from_micros(1), HOUR);
    store.claim(&key("lapsed"), &lapsed).await.unwrap();
    let mut connection = PgConnection::connect(&server.url()).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    let (_, refused) = take(&store, &mut tx, "later").await;
    assert!(matches!(refused, Taking::Refused(ClaimAnswer::RetryAt { .. })), "{refused:?}");
    let (_, refused) = take(&store, &mut tx, "doubt").await;
    assert!(matches!(refused, Taking::Refused(_)), "{refused:?}");
    let locks = "select count(*) from pg_locks join pg_database on oid = database \
                 where locktype = 'advisory' and datname = current_database()";
    assert_eq!(server.sql(locks), "0");
    let (_, taking) = take(&store, &mut tx, "lapsed").await;
    assert!(matches!(taking, Taking::Taken(_)), "{taking:?}");
    assert_eq!(server.sql(locks), "1", "what it takes over it holds");
}

// Runs on one thread, so that both claims are in one batch.
#[tokio::test]
async fn the_fence_of_a_claim_behind_one_that_waited_is_of_the_moment_at_which_it_was_granted() {
    let server = Postgres::shared();
    // With these timeouts the first claim waits for as long as the test takes.
    let builder = PostgresStore::builder(&server.url()).table("slow").operation_timeout(MINUTE);
    let open = || builder.clone().lock_timeout(MINUTE).connect();
    let maker = open().await.unwrap();
    for name in ["first", "second"] {
        claimed(&maker, name).await.unwrap();
    }
    let _ = server.sql("create table kept as select * from slow where key = 'first'; delete from slow");
    // Once with a store that has claimed these keys before, and once with a new store.
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
        let polling = async {
            while server.sql(waits) != "1" {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(MINUTE, polling).await.expect("the first claim waits");
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
    // A new store, like that of another process, does not know the results and their sizes.
    let fresh = open().await.unwrap();
    for round in [&fresh, &store] {
        let (before, _) = meter.now();
        let answers =
            join_all((0..40).map(|number| async move { claimed(round, &format!("large {number}")).await }))
                .await;
        assert!(answers.iter().all(|answer| matches!(answer, Ok(ClaimAnswer::Replay(_)))), "{answers:?}");
        // Each result is too large to be read together with others, so each needs its own exchange.
        let exchanges = meter.now().0 - before;
        assert!(exchanges >= 40, "80 MiB in {exchanges} exchanges");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_records_though_the_expired_record_before_it_was_purged_meanwhile() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("daily").connect().await.unwrap();
    for purged in [true, false] {
        record(&store, "job", "yesterday").await;
        run(&server, "update daily set expires_at = 1, purge_at = 1");
        let mut connection = PgConnection::connect(&server.url()).await.unwrap();
        let mut tx = connection.begin().await.unwrap();
        let (owner, taking) = take(&store, &mut tx, "job").await;
        let Taking::Taken(taken) = taking else { panic!("{taking:?}") };
        if purged {
            assert_eq!(store.purge(10).await.unwrap(), 1);
        }
        let request = completion((owner, taken.grant), "today");
        let recorded = store.record(&mut *tx, &key("job"), &taken, &request).await.unwrap();
        assert_eq!(recorded, CompleteAnswer::Done);
        tx.commit().await.unwrap();
        assert_eq!(replayed(&store, "job").await, Some(b"today".to_vec()));
        run(&server, "delete from daily");
    }
}
