//! Purges of `PostgresStore`: they delete expired records in batches, and nothing else.

use std::time::{Duration, Instant};

use idem_postgres::PostgresStore;
use idem_runtime::Store;
use idem_runtime::protocol::{Claim, ClaimAnswer, Complete, OnCrash, Owner, Renew, StoredResult, Verdict};
use idem_test_servers::{Postgres, until};

use crate::support::{key, purged_by_three, run};

fn claim() -> Claim {
    let (lease, ttl) = (Duration::from_secs(60), Duration::from_secs(60));
    Claim::new(Owner::random(), lease, ttl)
}

/// How many records; `IDEM_PURGE=1000000` sets more.
fn count() -> usize {
    std::env::var("IDEM_PURGE").ok().map_or(20_000, |count| count.parse().expect("a number"))
}

/// A table with `count` copies of a claimed record, every second of them expired.
async fn filled(server: &Postgres, count: usize) -> PostgresStore {
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    store.claim(&key("model"), &claim()).await.unwrap();
    let columns = "state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, ttl, created_at";
    run(
        server,
        &format!(
            "insert into purged (scope, key, {columns}, expires_at, purge_at, completed_at, result) \
             select scope, convert_to('order ' || n, 'UTF8'), 1, owner, fence + n, attempt, recovered, on_crash, \
             lease_until, retry_at, ttl, created_at, \
             case when n % 2 = 0 then created_at - n when n % 5 = 0 then null else created_at * 2 end, created_at, \
             created_at, 'result' from purged, generate_series(1, {count}) n"
        ),
    );
    store
}

fn left(server: &Postgres) -> (usize, usize) {
    let count = |of: &str| server.sql(&format!("select count(*) from purged where {of}")).parse().unwrap();
    (count("expires_at < created_at"), count("expires_at is null or expires_at > created_at"))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_purges_at_once_delete_each_expired_record_once_and_no_live_one() {
    let (server, count) = (Postgres::shared(), count());
    let store = filled(&server, count).await;
    let live = left(&server).1;
    let begin = Instant::now();
    let purged = purged_by_three(&store, 7_000).await;
    println!("{purged} of {count} in {:?}", begin.elapsed());
    assert_eq!((purged, left(&server)), (count / 2, (0, live)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_holds_is_left_for_later_and_nobody_waits_for_it() {
    let server = Postgres::shared();
    let store = filled(&server, 100).await;
    let pool = sqlx::PgPool::connect(&server.url()).await.unwrap();
    let mut holding = pool.begin().await.unwrap();
    let held = "SELECT FROM purged WHERE key IN ('order 2', 'order 4') FOR UPDATE";
    assert_eq!(sqlx::query(held).fetch_all(&mut *holding).await.unwrap().len(), 2);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 48);
    holding.rollback().await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 2);
}

#[test]
fn a_purge_looks_at_the_expired_only() {
    let server = Postgres::shared();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = filled(&server, 5_000).await;
        assert_eq!(store.purge(usize::MAX).await.unwrap(), 2_500);
        run(&server, "vacuum analyze purged");
        let reads = || server.sql("select seq_tup_read from pg_stat_user_tables where relname = 'purged'");
        let before = reads();
        for _ in 0..20 {
            assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
        }
        assert_eq!(reads(), before);
    });
}

/// A claim, three renewals and a result for each of a hundred keys. Only updates that find their page full may write the
/// indexes.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_and_completions_write_no_index() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    for n in 0..100 {
        let on_crash = if n % 2 == 0 { OnCrash::Rerun } else { OnCrash::InDoubt };
        let (key, claim) = (key(&format!("order {n}")), claim().with_on_crash(on_crash));
        let ClaimAnswer::Granted(grant) = store.claim(&key, &claim).await.unwrap() else { panic!() };
        for _ in 0..3 {
            let lease = Duration::from_secs(120);
            store.renew(&key, &Renew::new(claim.owner, grant.fence, lease)).await.unwrap();
        }
        let result = StoredResult::Value(vec![7; 64].into());
        let complete =
            Complete::new(claim.owner, grant.fence, Verdict::Completed, result, Duration::from_secs(60));
        store.complete(&key, &complete).await.unwrap();
    }
    // The server's counters lag behind.
    let counts = || {
        let counts = server.sql(
            "select n_tup_upd || ' ' || n_tup_hot_upd from pg_stat_user_tables where relname = 'purged'",
        );
        let (updates, heap_only) = counts.split_once(' ').expect("two numbers");
        (updates.parse::<u32>().unwrap(), heap_only.parse::<u32>().unwrap())
    };
    while counts().0 < 400 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (updates, heap_only) = counts();
    assert_eq!(updates, 400);
    assert!(heap_only >= 380, "{heap_only} of {updates} wrote no index");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_lives_longer_than_its_claim_said_is_deleted_when_it_ends() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    let minute = Duration::from_secs(60);
    let (renewed, doubted) = (key("renewed"), key("in doubt"));
    let mut grants = Vec::new();
    for (key, on_crash) in [(&renewed, OnCrash::Rerun), (&doubted, OnCrash::InDoubt)] {
        let claim = Claim::new(Owner::random(), minute, minute).with_on_crash(on_crash);
        let ClaimAnswer::Granted(grant) = store.claim(key, &claim).await.unwrap() else { panic!() };
        grants.push((claim.owner, grant.fence));
    }
    let (owner, fence) = grants[0];
    store.renew(&renewed, &Renew::new(owner, fence, Duration::from_secs(3_600))).await.unwrap();
    // As if their claims had expired, and purges had run since then.
    let due =
        || server.sql("select count(*) from purged where purge_at <= extract(epoch from now()) * 1000000");
    let _ = server.sql("update purged set purge_at = 1");
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
    assert_eq!(due(), "0", "both are to be looked at later");
    assert!(store.get(&renewed).await.unwrap().is_some());
    assert!(store.get(&doubted).await.unwrap().is_some());
    let _ = server.sql("update purged set purge_at = 1, expires_at = 1 where expires_at is not null");
    let _ = server.sql("update purged set purge_at = 1");
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 1);
    assert!(store.get(&doubted).await.unwrap().is_some(), "a doubt has no end");
}

#[tokio::test]
async fn a_result_that_is_kept_for_less_than_its_claim_said_is_deleted_when_it_ends() {
    let server = Postgres::shared();
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    let claim = claim();
    let ClaimAnswer::Granted(grant) = store.claim(&key("short"), &claim).await.unwrap() else { panic!() };
    let result = StoredResult::Value("r".into());
    let ttl = Duration::from_millis(1);
    let complete = Complete::new(claim.owner, grant.fence, Verdict::Completed, result, ttl);
    store.complete(&key("short"), &complete).await.unwrap();
    tokio::time::sleep(ttl * 2).await;
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 1);
}

#[tokio::test]
async fn a_store_purges_by_itself_unless_that_is_off() {
    const OFTEN: Duration = Duration::from_millis(20);
    let server = Postgres::shared();
    let builder = |table: &str| PostgresStore::builder(&server.url()).table(table).purge_every(OFTEN);
    let _stores = [
        builder("own").connect().await.unwrap(),
        builder("off").purge_every(None).connect().await.unwrap(),
        builder("off").must_exist().connect().await.unwrap(),
    ];
    let expired = |table: &str| {
        run(
            &server,
            &format!(
                "insert into {table} (scope, key, state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, \
                 ttl, created_at, expires_at, purge_at) values ('s', 'k', 3, '', 1, 1, false, 0, 1, 1, 1, 1, 1, 1)"
            ),
        );
    };
    let records = |table: &str| server.sql(&format!("select count(*) from {table}"));
    expired("off");
    // Purges of another store are the clock for what must not happen.
    for _ in 0..5 {
        expired("own");
        until("the expired record is deleted", || records("own") == "0");
    }
    assert_eq!(records("off"), "1");
}
