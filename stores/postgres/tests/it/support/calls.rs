//! Calls of a store, by the names of their keys.

use std::time::Duration;

use idem_postgres::PostgresStore;
use idem_runtime::protocol::{Claim, ClaimAnswer, Complete, Grant, Owner, StoredResult, Verdict};
use idem_runtime::{Key, RecordKey, Scope, Store};
use idem_test_servers::Postgres;

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

pub(crate) fn key(name: &str) -> RecordKey {
    RecordKey::new(Scope::new("postgres").unwrap(), Key::new(name).unwrap())
}

pub(crate) fn claim(owner: Owner) -> Claim {
    Claim::new(owner, HOUR, HOUR)
}

pub(crate) async fn grant(store: &PostgresStore, name: &str) -> (Owner, Grant) {
    let owner = Owner::random();
    match store.claim(&key(name), &claim(owner)).await.unwrap() {
        ClaimAnswer::Granted(grant) => (owner, grant),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn completion(owner: Owner, grant: Grant, result: &'static [u8]) -> Complete {
    let result = StoredResult::Value(result.into());
    Complete::new(owner, grant.fence, Verdict::Completed, result, HOUR)
}

pub(crate) async fn is_replayed(store: &PostgresStore, name: &str) -> bool {
    matches!(store.claim(&key(name), &claim(Owner::random())).await.unwrap(), ClaimAnswer::Replay(_))
}

/// Runs a statement on the server.
pub(crate) fn run(server: &Postgres, statement: &str) {
    let _ = server.sql(statement);
}
