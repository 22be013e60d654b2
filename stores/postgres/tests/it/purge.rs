//! Housekeeping of `PostgresStore`: what expired goes in batches, nothing else ever does.

use std::time::{Duration, Instant};

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{Claim, ClaimAnswer, Owner};
use idem_runtime::{Key, RecordKey, Scope, Store};
use idem_test_servers::Postgres;

fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("purge").unwrap(), Key::new(name).unwrap())
}

fn claim() -> Claim {
    let (lease, ttl) = (Duration::from_secs(60), Duration::from_secs(60));
    Claim::new(Owner::random(), lease, ttl)
}

/// How many records; `IDEM_PURGE=1000000` asks for more.
fn count() -> usize {
    std::env::var("IDEM_PURGE").ok().map_or(20_000, |count| count.parse().expect("a number"))
}

/// Puts `count` records in the place of one that was claimed: every second one is expired.
async fn filled(server: &Postgres, count: usize) -> PostgresStore {
    let store = PostgresStore::builder(&server.url()).table("purged").connect().await.unwrap();
    store.claim(&key("model"), &claim()).await.unwrap();
    let columns = "state, owner, fence, attempt, recovered, on_crash, lease_until, retry_at, ttl, created_at";
    run(
        server,
        &format!(
            "insert into purged (scope, key, {columns}, expires_at, completed_at, result) \
             select scope, convert_to('order ' || n, 'UTF8'), 1, owner, fence + n, attempt, recovered, on_crash, \
             lease_until, retry_at, ttl, created_at, \
             case when n % 2 = 0 then created_at - n when n % 5 = 0 then null else created_at * 2 end, \
             created_at, 'result' from purged, generate_series(1, {count}) n"
        ),
    );
    store
}

fn run(server: &Postgres, statement: &str) {
    let _ = server.sql(statement);
}

fn left(server: &Postgres) -> (usize, usize) {
    let count = |of: &str| server.sql(&format!("select count(*) from purged where {of}")).parse().unwrap();
    (count("expires_at < created_at"), count("expires_at is null or expires_at > created_at"))
}

#[tokio::test(flavor = "multi_thread")]
async fn several_purges_at_once_delete_each_expired_record_once_and_no_live_one() {
    let (server, count) = (Postgres::start(), count());
    let store = filled(&server, count).await;
    let live = left(&server).1;
    let begin = Instant::now();
    let purging: Vec<_> = (0..3)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut purged = 0;
                loop {
                    match store.purge(7_000).await.unwrap() {
                        0 => return purged,
                        some => purged += some,
                    }
                }
            })
        })
        .collect();
    let mut purged = 0;
    for each in purging {
        purged += each.await.unwrap();
    }
    println!("{purged} of {count} in {:?}", begin.elapsed());
    assert_eq!((purged, left(&server)), (count / 2, (0, live)));
    // Fences rise over all that was deleted, whatever the clock says.
    let highest =
        server.sql("select value from purged_meta where name = 'fence_floor'").parse::<u64>().unwrap();
    run(
        &server,
        &format!("update purged_meta set value = {} where name = 'fence_floor'", highest + (1 << 60)),
    );
    let ClaimAnswer::Granted(grant) = store.claim(&key("order 2"), &claim()).await.unwrap() else { panic!() };
    assert_eq!((grant.attempt, grant.fence.get()), (1, highest + (1 << 60) + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_transaction_holds_is_left_for_later_and_nobody_waits_for_it() {
    let server = Postgres::start();
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
    let server = Postgres::start();
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
