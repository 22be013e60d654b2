//! Purges of `MySqlStore`: they delete expired records in batches, and nothing else.

use std::time::{Duration, Instant};

use idem_mysql::MySqlStore;
use idem_runtime::Store;
use idem_runtime::protocol::{Claim, OnCrash, Owner, RecordStep, RecordedStep, Renew, StoredResult};
use idem_test_servers::MariaDb;
use sqlx::{Executor as _, MySqlPool};

use crate::support::{
    HOUR, both_ways, claim as claim_of, completion, grant, key, new_table, purged_by_three, run,
};

fn claim() -> Claim {
    let (lease, ttl) = (Duration::from_secs(60), Duration::from_secs(60));
    Claim::new(Owner::random(), lease, ttl)
}

/// How many records; `IDEM_PURGE=1000000` sets more.
fn count() -> usize {
    std::env::var("IDEM_PURGE").ok().map_or(6_000, |count| count.parse().expect("a number"))
}

/// A table with `count` copies of a claimed record, every second of them expired.
async fn filled(server: &MariaDb, count: usize) -> MySqlStore {
    let store = MySqlStore::builder(&server.url()).table("purged").connect().await.unwrap();
    store.claim(&key("model"), &claim()).await.unwrap();
    run(
        server,
        &format!(
            "insert into purged (scope, `key`, state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, \
             ttl, created_at, expires_at, purge_at, completed_at, steps, result) \
             select scope, concat('order ', n.seq), 1, owner, fence + n.seq, attempt, recovered, on_crash, lease_until, \
             retry_at, ttl, created_at, if(n.seq % 2 = 0, created_at - n.seq, if(n.seq % 5 = 0, null, created_at * 2)), \
             created_at - n.seq, created_at, 0, 'result' from purged join seq_1_to_{count} n on purged.`key` = 'model'"
        ),
    );
    store
}

fn left(server: &MariaDb) -> (usize, usize) {
    let count = |of: &str| server.sql(&format!("select count(*) from purged where {of}")).parse().unwrap();
    (count("expires_at < created_at"), count("expires_at is null or expires_at > created_at"))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_purges_at_once_delete_each_expired_record_once_and_no_live_one() {
    let (server, count) = (MariaDb::shared(), count());
    let store = filled(&server, count).await;
    let live = left(&server).1;
    let begin = Instant::now();
    let purged = purged_by_three(&store, 1_000).await;
    println!("{purged} of {count} in {:?}", begin.elapsed());
    assert_eq!((purged, left(&server)), (count / 2, (0, live)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_holds_is_left_for_later_and_nobody_waits_for_it() {
    let server = MariaDb::shared();
    let store = filled(&server, 100).await;
    let pool = MySqlPool::connect(&server.url()).await.unwrap();
    let mut holding = pool.begin().await.unwrap();
    let held = "SELECT * FROM purged WHERE scope = 'orders' AND `key` IN ('order 2', 'order 4') FOR UPDATE";
    holding.execute(held).await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 48);
    holding.rollback().await.unwrap();
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_steps_of_a_record_go_with_it() {
    let server = MariaDb::shared();
    let store = MySqlStore::builder(&server.url()).table("stepped").connect().await.unwrap();
    for name in ["expired", "forgotten", "kept"] {
        let (owner, held) = grant(&store, name).await;
        for position in 0..3 {
            let result = StoredResult::Value(vec![7; 100_000].into());
            let step = RecordedStep::new(format!("step {position}"), None, result);
            store.record_step(&key(name), &RecordStep::new(owner, held.fence, position, step)).await.unwrap();
        }
    }
    let steps = "select count(*) from stepped_steps";
    assert_eq!(server.sql(steps), "9");
    run(&server, "update stepped set expires_at = 1, purge_at = 1 where `key` = 'expired'");
    assert_eq!(store.purge(10).await.unwrap(), 1);
    assert_eq!(server.sql(steps), "6");
    assert!(store.forget(&key("forgotten")).await.unwrap());
    assert_eq!(server.sql("select distinct `key` from stepped_steps"), "0x6B657074");
    assert_eq!(store.get(&key("kept")).await.unwrap().unwrap().steps.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_left_over_from_a_record_that_was_deleted_by_hand_are_replaced() {
    let server = MariaDb::shared();
    let store = MySqlStore::builder(&server.url()).table("left_over").connect().await.unwrap();
    for bytes in [vec![1; 10], vec![2; 100_000], vec![3; 20]] {
        let (owner, held) = grant(&store, "order").await;
        let step = RecordedStep::new("step".to_owned(), None, StoredResult::Value(bytes.into()));
        let request = RecordStep::new(owner, held.fence, 0, step.clone());
        store.record_step(&key("order"), &request).await.unwrap();
        assert_eq!(store.get(&key("order")).await.unwrap().unwrap().steps, [step]);
        run(&server, "delete from left_over");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_looks_once_at_what_lives_longer_than_its_claim_said() {
    let server = MariaDb::shared();
    for url in both_ways(&server) {
        let table = new_table();
        let store = MySqlStore::builder(&url).table(&table).connect().await.unwrap();
        let at = |column: &str, name: &str| -> u64 {
            server
                .sql(&format!("select ifnull({column}, 0) from {table} where `key` = '{name}'"))
                .parse()
                .unwrap()
        };
        let (owner, held) = grant(&store, "order").await;
        let first = at("purge_at", "order");
        assert_eq!(first, at("created_at", "order") + 3_600_000_000);
        // Neither writes the index.
        store.renew(&key("order"), &Renew::new(owner, held.fence, 2 * HOUR)).await.unwrap();
        store.complete(&key("order"), &completion((owner, held), "done")).await.unwrap();
        assert_eq!(at("purge_at", "order"), first);
        // A result that is kept for a shorter time does, in a batch as alone.
        let names: Vec<_> = (0..20).map(|number| format!("short {number}")).collect();
        let ends: Vec<_> = futures_util::future::join_all(names.iter().map(|name| async {
            let (owner, held) = grant(&store, name).await;
            let mut done = completion((owner, held), "done");
            done.ttl = Duration::from_secs(60);
            store.complete(&key(name), &done).await.unwrap();
            (at("purge_at", name), at("expires_at", name))
        }))
        .await;
        assert!(ends.iter().all(|(purge_at, expires_at)| purge_at == expires_at), "{ends:?}");
        // Too early for the first; the second has no end.
        let mut claim = claim_of(Owner::random());
        claim.on_crash = OnCrash::InDoubt;
        store.claim(&key("endless"), &claim).await.unwrap();
        run(&server, &format!("update {table} set purge_at = 1, ttl = if(expires_at is null, ~0, ttl)"));
        assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
        assert_eq!(at("purge_at", "order"), at("expires_at", "order"));
        assert!(at("purge_at", "endless") > first);
        run(&server, &format!("update {table} set purge_at = 1 where `key` in ('order', 'endless')"));
        run(&server, &format!("update {table} set expires_at = 1 where `key` = 'order'"));
        assert_eq!(store.purge(usize::MAX).await.unwrap(), 1);
        assert_eq!(server.sql(&format!("select count(*) from {table} where purge_at = 1")), "0");
    }
}
