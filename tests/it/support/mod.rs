//! Helpers shared by the tests.
#![allow(dead_code, unreachable_pub)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idem::protocol::{Claim, ClaimAnswer, Complete, Grant, Owner, State, StoredResult, Verdict};
use idem::{KeyBuilder, OnCrash, Operation, RecordKey, Scope, Store};
use serde::{Deserialize, Serialize};

pub const SCOPE: &str = "test.operation";
pub const LEASE: Duration = Duration::from_secs(30);

/// The error of a user's function.
#[derive(Debug, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    #[error("try again")]
    Transient,
    #[error("never again")]
    Final,
    #[error(transparent)]
    #[serde(skip)]
    Idem(#[from] idem::Error),
}

impl Failure {
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Final)
    }

    /// The kind of idem's own error, or `"body"`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            _ => "body",
        }
    }
}

pub fn operation() -> Operation {
    Operation::new(SCOPE).lease(LEASE)
}

pub fn record_key(key: &str) -> RecordKey {
    let key = KeyBuilder::new().part(key).finish().unwrap();
    RecordKey::new(Scope::new(SCOPE).unwrap(), key)
}

/// The state of the record for `k`.
pub async fn state<S: Store>(store: &S) -> Option<State> {
    store.get(&record_key("k")).await.unwrap().map(|record| record.state)
}

#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicUsize>);

impl Runs {
    /// Counts one run, and returns its number.
    pub fn run(&self) -> usize {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Claims a key for a worker that never finishes.
pub async fn crashed_worker<S: Store>(store: &S, key: &str, on_crash: OnCrash) -> (Owner, Grant) {
    let owner = Owner::random();
    let request = Claim::new(owner, LEASE, Duration::from_secs(86_400)).with_on_crash(on_crash);
    match store.claim(&record_key(key), &request).await.unwrap() {
        ClaimAnswer::Granted(grant) => (owner, grant),
        other => panic!("the worker was not granted the key: {other:?}"),
    }
}

/// The completion by which the owner of a claim records its result.
pub fn completion(owner: Owner, grant: Grant, json: &'static str) -> Complete {
    Complete::new(
        owner,
        grant.fence,
        Verdict::Completed,
        StoredResult::Value(json.into()),
        Duration::from_secs(86_400),
    )
}
