//! A table that an earlier version made, with live records in it.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{
    Claim, ClaimAnswer, Owner, RecordStep, RecordStepAnswer, RecordedStep, StoredResult,
};
use idem_runtime::{Key, RecordKey, Scope, Store};
use idem_test_servers::Postgres;

/// The first layout, as its own statements made it.
const FIRST_LAYOUT: &str = "create table old (
        scope bytea not null, key bytea not null, state smallint not null, owner bytea not null,
        fence bigint not null, attempt bigint not null, recovered boolean not null, on_crash smallint not null,
        lease_until bigint not null, retry_at bigint not null, ttl bigint not null, fingerprint bytea,
        tombstone smallint, created_at bigint not null, completed_at bigint, expires_at bigint, result bytea,
        primary key (scope, key));
    create index old_expiry on old (expires_at) where expires_at is not null;
    create table old_meta (name text primary key, value bigint not null);
    insert into old_meta (name, value) values ('schema_version', 1), ('fence_floor', 9000000000000000000);
    create view old_readable as select
        case when position('\\x00'::bytea in scope) = 0 and current_setting('server_encoding') = 'UTF8'
            then convert_from(scope, 'UTF8') else encode(scope, 'escape') end as scope,
        case when position('\\x00'::bytea in key) = 0 and current_setting('server_encoding') = 'UTF8'
            then convert_from(key, 'UTF8') else encode(key, 'escape') end as key,
        (array['in_flight', 'completed', 'failed', 'released', 'in_doubt'])[state + 1] as state,
        encode(owner, 'hex') as owner, fence, attempt, recovered, (array['rerun', 'in_doubt'])[on_crash + 1] as on_crash,
        to_timestamp(lease_until / 1000000.0) as lease_until, to_timestamp(retry_at / 1000000.0) as retry_at,
        ttl * interval '1 microsecond' as ttl, encode(fingerprint, 'hex') as fingerprint,
        (array['too_large', 'not_encodable', 'exhausted'])[tombstone + 1] as tombstone,
        to_timestamp(created_at / 1000000.0) as created_at, to_timestamp(completed_at / 1000000.0) as completed_at,
        to_timestamp(expires_at / 1000000.0) as expires_at, octet_length(result) as result_bytes
        from old;
    create role looker; grant select on old_readable to looker;";

fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("test").unwrap(), Key::new(name).unwrap())
}

fn claim() -> Claim {
    let hour = Duration::from_secs(3_600);
    Claim::new(Owner::random(), hour, hour)
}

fn owner() -> Owner {
    Owner::from_bytes([3; 16])
}

/// Rows of the first layout; all are alive but the last.
fn fill(server: &Postgres) {
    for (key, state, completed, expires, result) in [
        ("in flight", 0, "null", "8000000000000000", "null"),
        ("done", 1, "6", "8000000000000000", "'receipt'"),
        ("doubt", 4, "null", "null", "null"),
        ("over", 3, "null", "1", "null"),
    ] {
        let _ = server.sql(&format!(
            "insert into old values ('test', '{key}', {state}, decode(repeat('03', 16), 'hex'), 7, 2, false, 0, \
             7000000000000000, 0, 3600000000, null, null, 5, {completed}, {expires}, {result})"
        ));
    }
}

fn step(name: &str) -> RecordedStep {
    RecordedStep::new(name.into(), None, StoredResult::Value("done".into()))
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_stores_that_find_the_first_layout_at_once_keep_its_records_and_take_steps() {
    let server = Postgres::start();
    let _ = server.sql(FIRST_LAYOUT);
    fill(&server);
    let starting: Vec<_> = (0..10)
        .map(|_| {
            let url = server.url();
            tokio::spawn(async move { PostgresStore::builder(&url).table("old").connect().await })
        })
        .collect();
    let mut stores = Vec::new();
    for store in starting {
        stores.push(store.await.unwrap().unwrap());
    }
    assert_eq!(server.sql("select value from old_meta where name = 'schema_version'"), "3");
    let store = &stores[3];
    let ClaimAnswer::Replay(replay) = store.claim(&key("done"), &claim()).await.unwrap() else { panic!() };
    assert_eq!(replay.result, StoredResult::Value("receipt".into()));
    assert_eq!(store.claim(&key("doubt"), &claim()).await.unwrap(), ClaimAnswer::InDoubt);
    assert_eq!(store.get(&key("over")).await.unwrap(), None);
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 1, "what expired under the first layout is found");
    let ClaimAnswer::Granted(grant) = store.claim(&key("new"), &claim()).await.unwrap() else { panic!() };
    assert!(grant.fence.get() > 9_000_000_000_000_000_000, "the floor of fences is kept");

    let fence = store.get(&key("in flight")).await.unwrap().unwrap().fence;
    let request = RecordStep::new(owner(), fence, 0, step("reserve"));
    let recorded = store.record_step(&key("in flight"), &request).await.unwrap();
    assert_eq!(recorded, RecordStepAnswer::Recorded);
    assert_eq!(stores[8].get(&key("in flight")).await.unwrap().unwrap().steps, [request.step]);
    let view = "set role looker; select steps from old_readable where key = 'in flight'";
    assert!(server.sql(view).ends_with('1'), "who could read the view still can, and sees a step");
}

/// A process of the first layout still runs while others use steps: its statements name the columns that it knows.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_knows_of_no_steps_leaves_none_to_the_next_generation() {
    let server = Postgres::start();
    let _ = server.sql(FIRST_LAYOUT);
    fill(&server);
    let store = PostgresStore::builder(&server.url()).table("old").connect().await.unwrap();
    let fence = store.get(&key("in flight")).await.unwrap().unwrap().fence;
    let record = |position, name: &str| RecordStep::new(owner(), fence, position, step(name));
    let steps = || async { store.get(&key("in flight")).await.unwrap().unwrap().steps };
    store.record_step(&key("in flight"), &record(0, "one")).await.unwrap();
    let _ = server.sql("update old set state = 3 where key = 'in flight'");
    assert_eq!(steps().await, [step("one")], "a release keeps them");
    let _ = server.sql("update old set state = 0, created_at = 77 where key = 'in flight'");
    assert_eq!(steps().await, [], "a new generation has none");
    let answer = store.record_step(&key("in flight"), &record(0, "anew")).await.unwrap();
    assert_eq!(answer, RecordStepAnswer::Recorded);
    assert_eq!(steps().await, [step("anew")]);
    let _ = server.sql("update old set state = 1, completed_at = 78, result = 'r' where key = 'in flight'");
    assert_eq!(steps().await, [], "nor has a result");
}
