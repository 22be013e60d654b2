//! What the tests of stores of SQL servers share: functions that call a store by the name of a key, and the
//! checks that every such store must pass. The tests of each store include this file.

#![allow(dead_code, reason = "each store uses some of it")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use idem_core::protocol::{
    Claim, ClaimAnswer, Complete, CompleteAnswer, Grant, OnCrash, Owner, Release, ReleaseAnswer,
    ReleaseCause, Renew, Replay, StoredResult, Verdict,
};
use idem_core::{Key, RecordKey, Scope, Store, StoreError, StoreErrorKind};
use idem_test_servers::meter::Meter;
use idem_test_servers::{DatabaseServer, Engine, until};
use serde::{Deserialize, Serialize};

/// A part of the TLS library's error text for a certificate that it refuses.
pub(crate) const REFUSED: &str =
    if cfg!(feature = "native-tls") { "certificate verify failed" } else { "invalid peer certificate" };
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
/// The operation timeout of stores in tests that wait until an operation times out.
pub(crate) const TIME: Duration = Duration::from_secs(2);
/// Upper limit for an operation with the timeout [`TIME`], even if a busy machine stops its thread for a
/// while. It is at most the default timeout, so a store that ignores [`TIME`] fails the test.
pub(crate) const BOUND: Duration = Duration::from_secs(5);
/// How long the tests wait for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Held = (Owner, Grant);

/// The error of a user's function.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    Transient,
    Final,
    Sql(String),
    #[serde(skip)]
    Idem(idem_runtime::Error),
}

impl From<idem_runtime::Error> for Failure {
    fn from(error: idem_runtime::Error) -> Self {
        Self::Idem(error)
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error.to_string())
    }
}

impl Failure {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            Self::Transient | Self::Final => "body",
            Self::Sql(_) => "sql",
        }
    }
}

pub(crate) fn new_table() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("records_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Connects a store with a short timeout. Tries again, because on a busy machine the first connection may
/// take longer than the timeout.
pub(crate) async fn connected<S>(connect: impl AsyncFn() -> Result<S, StoreError>) -> S {
    for _ in 0..20 {
        match connect().await {
            Ok(store) => return store,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    panic!("no connection in time")
}

pub(crate) fn run<E: Engine>(server: &DatabaseServer<E>, statement: &str) {
    let _ = server.sql(statement);
}

pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("orders").unwrap(), Key::new(name).unwrap())
}

pub(crate) fn claim(owner: Owner) -> Claim {
    Claim::new(owner, HOUR, HOUR)
}

/// The answer to a claim of a new owner.
pub(crate) async fn claimed(store: &impl Store, name: &str) -> Result<ClaimAnswer, StoreError> {
    store.claim(&key(name), &claim(Owner::random())).await
}

pub(crate) async fn grant(store: &impl Store, name: &str) -> Held {
    let owner = Owner::random();
    match store.claim(&key(name), &claim(owner)).await.unwrap() {
        ClaimAnswer::Granted(grant) => (owner, grant),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn completion((owner, grant): Held, result: impl Into<Vec<u8>>) -> Complete {
    let result = StoredResult::Value(result.into().into());
    Complete::new(owner, grant.fence, Verdict::Completed, result, HOUR)
}

pub(crate) async fn complete(store: &impl Store, name: &str, held: Held, result: impl Into<Vec<u8>>) {
    let done = store.complete(&key(name), &completion(held, result)).await.unwrap();
    assert_eq!(done, CompleteAnswer::Done);
}

/// Claims this key and completes it with this result.
pub(crate) async fn record(store: &impl Store, name: &str, result: impl Into<Vec<u8>>) {
    complete(store, name, grant(store, name).await, result).await;
}

/// Releases a claim, as after a body that failed.
pub(crate) async fn release(store: &impl Store, name: &str, (owner, grant): Held) {
    let request = Release::new(owner, grant.fence, ReleaseCause::Failed);
    assert_eq!(store.release(&key(name), &request).await.unwrap(), ReleaseAnswer::Released);
}

/// Makes a released record of this key.
pub(crate) async fn released(store: &impl Store, name: &str) {
    release(store, name, grant(store, name).await).await;
}

/// The result that a duplicate gets.
pub(crate) async fn replayed(store: &impl Store, name: &str) -> Option<Vec<u8>> {
    match claimed(store, name).await.unwrap() {
        ClaimAnswer::Replay(Replay { result: StoredResult::Value(bytes), .. }) => Some(bytes.to_vec()),
        _ => None,
    }
}

/// Eight callers claim and complete the same sixty keys, while the server is killed three times. Each kill
/// comes as soon as the statement `commits` shows that the server has committed something more.
pub(crate) async fn no_grant_is_given_twice<E: Engine>(
    store: impl Store,
    mut server: DatabaseServer<E>,
    commits: &str,
) {
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for number in 0..60 {
                    let (owner, name) = (Owner::random(), format!("order {number}"));
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
        let before = server.sql(commits);
        let is_over = || callers.iter().all(|caller| caller.is_finished());
        until("it works", || is_over() || server.sql(commits) != before);
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

/// Stops the server of a store with the operation timeout [`TIME`], and lets it continue after an operation
/// has timed out. `server(false)` stops the server, and `server(true)` lets it continue.
pub(crate) async fn a_hanging_server_leaves_the_outcome_unknown(
    store: &impl Store,
    mut server: impl FnMut(bool),
) {
    server(false);
    let (begin, owner) = (Instant::now(), Owner::random());
    let error = store.claim(&key("order"), &claim(owner)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::OutcomeUnknown, "{error}");
    assert!(begin.elapsed() < BOUND, "{:?}", begin.elapsed());
    server(true);
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

/// Checks two rules about `purge_at`, the time at which a purge looks at a record. First, a renewal or a
/// result changes `purge_at` only if the record then expires before the old `purge_at`. Second, a purge that
/// comes before the record expires sets `purge_at` to the time at which it expires.
///
/// `sql` runs a statement. `table` is the store's table, which is empty. `longest` is an SQL expression for
/// the ttl of a record that never expires; a purge must be able to add that ttl to a time.
pub(crate) async fn a_purge_looks_once(
    store: &impl Store,
    sql: impl Fn(&str) -> String,
    table: &str,
    longest: &str,
) {
    let at = |column: &str, on_crash: u8| -> u64 {
        sql(&format!("select {column} from {table} where on_crash = {on_crash}")).parse().unwrap()
    };
    let count = |which: &str| sql(&format!("select count(*) from {table} where {which}"));
    let (owner, held) = grant(store, "order").await;
    let first = at("purge_at", 0);
    assert_eq!(first, at("created_at", 0) + 3_600_000_000);
    // Neither of these requests writes the index.
    store.renew(&key("order"), &Renew::new(owner, held.fence, 2 * HOUR)).await.unwrap();
    complete(store, "order", (owner, held), "done").await;
    assert_eq!(at("purge_at", 0), first);
    // A result with which the record expires before `purge_at` does write the index, also in a batch.
    let names: Vec<_> = (0..20).map(|number| format!("short {number}")).collect();
    join_all(names.iter().map(|name| async move {
        let mut done = completion(grant(store, name).await, "done");
        done.ttl = Duration::from_secs(60);
        store.complete(&key(name), &done).await.unwrap();
    }))
    .await;
    assert_eq!(count("purge_at = expires_at"), "20");
    // The purge comes too early for all these records; the last one never expires.
    let endless = claim(Owner::random()).with_on_crash(OnCrash::InDoubt);
    store.claim(&key("endless"), &endless).await.unwrap();
    let ttl = format!("case when expires_at is null then {longest} else ttl end");
    sql(&format!("update {table} set purge_at = 1, ttl = {ttl}"));
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 0);
    assert_eq!(count("purge_at = expires_at"), "21");
    assert!(at("purge_at", 1) > first);
    sql(&format!("update {table} set purge_at = 1"));
    sql(&format!("update {table} set expires_at = 1 where expires_at is not null"));
    assert_eq!(store.purge(usize::MAX).await.unwrap(), 21);
    assert_eq!((count("purge_at = 1"), count("on_crash = 1")), ("0".to_owned(), "1".to_owned()));
}

/// Checks that requests for the key `order 4711` return an error that shows only the key's digest. The
/// `store` must remember nothing about that key. `change` says what was done to the row.
pub(crate) async fn is_no_record(store: &impl Store, change: &str) {
    for error in [store.get(&key("order 4711")).await.map(drop), claimed(store, "order 4711").await.map(drop)]
    {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::CorruptRecord, "{change}: {error}");
        let text = format!("{error:?} {error}");
        let digest = key("order 4711").digest().to_string();
        assert!(text.contains(&digest) && !text.contains("order 4711"), "{text}");
    }
}

/// A proxy in front of the server on this port, and the URL through it.
pub(crate) async fn metered(port: u16, url: &str) -> (Meter, String) {
    let meter = Meter::before(port).await.unwrap();
    let url = url.replace(&format!(":{port}"), &format!(":{}", meter.port));
    (meter, url)
}
