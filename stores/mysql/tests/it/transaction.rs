//! Tests of records in callers' transactions, on several connections, through the trait that the engine uses.

use std::time::{Duration, Instant};

use idem_core::transaction::{RecordsIn as _, Taken, Taking};
use idem_mysql::MySqlStore;
use idem_runtime::Store;
use idem_runtime::protocol::{ClaimAnswer, CompleteAnswer, Owner};
use idem_test_servers::MariaDb;
use sqlx::{Connection as _, Executor as _, MySqlConnection};

use crate::support::{claim, claimed, completion, grant, key, record, released, run};

/// A server, and the stores of two processes on it.
async fn two_stores() -> (MariaDb, [MySqlStore; 2]) {
    let server = MariaDb::shared();
    let open = || MySqlStore::builder(&server.url()).operation_timeout(Duration::from_secs(30)).connect();
    let stores = [open().await.unwrap(), open().await.unwrap()];
    (server, stores)
}

async fn connection(server: &MariaDb) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.unwrap()
}

async fn take(store: &MySqlStore, connection: &mut MySqlConnection, name: &str) -> (Owner, Taking) {
    let owner = Owner::random();
    (owner, store.take(connection, &key(name), &claim(owner)).await.unwrap())
}

fn taken(taking: Taking) -> Box<Taken> {
    match taking {
        Taking::Taken(taken) => taken,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_find_the_key_of_a_transaction_busy_at_once_and_those_beside_it_free() {
    let (server, [store, other]) = two_stores().await;
    record(&store, "expired", "old").await;
    run(&server, "update idem_records set expires_at = 1");
    for name in ["new", "expired"] {
        let (mut first, mut another) = (connection(&server).await, connection(&server).await);
        let mut tx = first.begin().await.unwrap();
        taken(take(&store, &mut tx, name).await.1);
        let begin = Instant::now();
        for store in [&store, &other] {
            let answer = claimed(store, name).await.unwrap();
            assert!(matches!(answer, ClaimAnswer::Busy { .. }), "{name}: {answer:?}");
        }
        let mut second = another.begin().await.unwrap();
        let (_, taking) = take(&other, &mut second, name).await;
        assert!(matches!(taking, Taking::Refused(ClaimAnswer::Busy { .. })), "{name}: {taking:?}");
        // Keys near this key in the index. Their callers would wait if the transaction had locked the gap
        // around its key.
        for neighbour in ["a", "neu", "new ", "newer", "expire", "expiree", "z"] {
            let free = format!("{neighbour}/{name}");
            taken(take(&other, &mut second, &free).await.1);
            grant(&other, &format!("{free}/claimed")).await;
        }
        // If an operation waited for a lock, it would use up its timeout of 30 s.
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        second.rollback().await.unwrap();
        tx.rollback().await.unwrap();
        taken(take(&other, &mut another.begin().await.unwrap(), name).await.1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_transactions_that_want_a_released_key_at_once_none_waits_for_the_one_that_has_it() {
    const CALLERS: usize = 6;
    let (server, [store, _]) = two_stores().await;
    let mut connections = Vec::new();
    for _ in 0..CALLERS {
        connections.push(connection(&server).await);
    }
    for round in 0..20 {
        let name = format!("order {round}");
        released(&store, &name).await;
        // All callers look at the record in one batch, and then each caller tries to lock it. All
        // transactions stay open meanwhile.
        let takes = connections.iter_mut().map(|connection| {
            let (store, name) = (&store, &name);
            async move {
                let mut tx = connection.begin().await.unwrap();
                let taking = take(store, &mut tx, name).await.1;
                (tx, taking)
            }
        });
        let all = futures_util::future::join_all(takes);
        let all = tokio::time::timeout(Duration::from_secs(20), all).await.expect("nobody waits");
        let taken = all.iter().filter(|(_, taking)| matches!(taking, Taking::Taken(_))).count();
        assert_eq!(taken, 1, "{name}");
        for (tx, _) in all {
            tx.rollback().await.unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_does_not_get_a_deleted_key_keeps_no_lock_of_it() {
    let (server, [store, _]) = two_stores().await;
    let [mut reading, mut holding, mut refused, mut next] = [
        connection(&server).await,
        connection(&server).await,
        connection(&server).await,
        connection(&server).await,
    ];
    record(&store, "order", "old").await;
    // While a snapshot needs the row, the server only marks the row as deleted. An insert locks such a row
    // first for reading, and then for writing.
    let mut snapshot = reading.begin().await.unwrap();
    snapshot.fetch_all("SELECT * FROM idem_records").await.unwrap();
    run(&server, "delete from idem_records");
    let mut holder = holding.begin().await.unwrap();
    holder.fetch_all("SELECT * FROM idem_records LOCK IN SHARE MODE").await.unwrap();
    let mut without = refused.begin().await.unwrap();
    let taking = take(&store, &mut without, "order").await.1;
    assert!(matches!(taking, Taking::Refused(ClaimAnswer::Busy { .. })), "{taking:?}");
    holder.rollback().await.unwrap();
    taken(take(&store, &mut next.begin().await.unwrap(), "order").await.1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_the_snapshot_of_a_transaction_does_not_show_stays() {
    let (server, [store, other]) = two_stores().await;
    let mut connection = connection(&server).await;
    connection.execute("SET SESSION innodb_snapshot_isolation = OFF").await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    tx.fetch_all("SELECT * FROM idem_records").await.unwrap();
    grant(&other, "order").await;
    // The store finds the key busy, and looks for the reason in the transaction itself.
    tx.fetch_all("SELECT * FROM idem_records FOR UPDATE").await.unwrap();
    let taking = take(&store, &mut tx, "order").await.1;
    assert!(matches!(taking, Taking::Refused(ClaimAnswer::Busy { .. })), "{taking:?}");
    tx.commit().await.unwrap();
    assert!(other.get(&key("order")).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_others_claimed_and_released_since_is_not_written_over() {
    let (server, [store, other]) = two_stores().await;
    released(&store, "order").await;
    let mut connection = connection(&server).await;
    let mut tx = connection.begin().await.unwrap();
    let (owner, taking) = take(&store, &mut tx, "order").await;
    let taken = taken(taking);
    // The body gives up the lock and begins a new transaction. When the body ends, the record has been
    // claimed and released again.
    tx.execute("ROLLBACK").await.unwrap();
    tx.execute("START TRANSACTION").await.unwrap();
    released(&other, "order").await;
    let before = other.get(&key("order")).await.unwrap();
    let late = completion((owner, taken.grant), "late");
    let recorded = store.record(&mut *tx, &key("order"), &taken, &late).await.unwrap();
    assert_eq!(recorded, CompleteAnswer::Lost);
    tx.commit().await.unwrap();
    assert_eq!(other.get(&key("order")).await.unwrap(), before);
}
