//! Uses of the attribute and the derive. The code in this file causes no lint, so a lint comes from an
//! expansion.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use idem::{Error, KeyPart, MemoryStore, PostgresStore, Store};
use serde::{Deserialize, Serialize};
use sqlx::{Executor as _, Postgres, Transaction};

/// A part with a type parameter.
#[derive(Clone, Debug, KeyPart)]
pub struct Sku<T> {
    warehouse: u16,
    item: T,
}

/// A part with a lifetime.
#[derive(Clone, Copy, Debug, KeyPart)]
pub struct Name<'a>(&'a str, u8);

/// A part that is an enum.
#[derive(Clone, Copy, Debug, KeyPart)]
pub enum Region {
    /// Europe.
    #[key_part(rename = "eu")]
    Europe,
    /// America.
    America,
}

/// The error of a gateway.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Failure(bool);

impl Failure {
    #[expect(clippy::trivially_copy_pass_by_ref)]
    const fn is_final(&self) -> bool {
        self.0
    }
}

impl From<Error> for Failure {
    fn from(_: Error) -> Self {
        Self(false)
    }
}

const LEASE: Duration = Duration::from_secs(5);

/// Uses durations and a template with a placeholder that calls a method.
///
/// # Errors
///
/// idem's own errors.
#[idem::idempotent(key = "{sku}/{region}/{name.0.trim()}", ttl = "1h", lease = LEASE, store = store)]
pub async fn template(
    store: &MemoryStore,
    sku: &Sku<String>,
    region: Region,
    name: Name<'_>,
) -> Result<u8, Error> {
    ready(()).await;
    Ok(name.1)
}

/// Uses expressions, a fingerprint, a type parameter and an early return.
///
/// # Errors
///
/// idem's own errors.
#[idem::idempotent(
    key = (id, sku.item.len(), { sku.warehouse + 1 }),
    scope = "uses.expression",
    fingerprint = (sku.item, sku.warehouse),
    store = store,
    max_attempts = 3,
)]
pub async fn expression<S: Store, T: KeyPart + Sync + ToString>(
    store: Arc<S>,
    id: T,
    sku: &Sku<String>,
) -> Result<String, Error> {
    let text = id.to_string();
    ready(()).await;
    if text.is_empty() {
        return Ok("empty".to_owned());
    }
    Ok(text)
}

/// Uses several options.
///
/// # Errors
///
/// A failure.
#[idem::idempotent(key = "{id}/{part}", missing_key = "reject", terminal = Failure::is_final, wait = "5s", store = store)]
pub async fn missing(store: &MemoryStore, id: u8, part: Option<&str>) -> Result<usize, Failure> {
    ready(()).await;
    part.map(str::len).ok_or(Failure(id > 0))
}

/// The application that makes the calls.
#[derive(Clone, Debug, Default)]
pub struct App {
    store: MemoryStore,
}

impl App {
    /// A method.
    ///
    /// # Errors
    ///
    /// idem's own errors.
    #[idem::idempotent(key = "{id}", store = self.store, on_crash = "in_doubt", scope = "method", crate = ::idem)]
    pub async fn method(&self, id: u8) -> Result<u8, Error> {
        ready(()).await;
        Ok(id)
    }

    /// A detached method.
    ///
    /// # Errors
    ///
    /// A failure.
    #[idem::idempotent(key = "{id}", missing_key = "run", store = self.store, detach, fail_open, terminal = |_| true)]
    pub async fn detached(
        self: Arc<Self>,
        id: Option<u8>,
        names: Vec<String>,
        _permit: String,
    ) -> Result<usize, Failure> {
        ready(()).await;
        Ok(names.len() + id.map_or(0, usize::from))
    }
}

/// A bank that moves money.
#[derive(Clone, Debug)]
pub struct Bank(PostgresStore);

impl Bank {
    /// Runs in the caller's transaction.
    ///
    /// # Errors
    ///
    /// A failure.
    #[idem::idempotent(
        key = "{id}",
        fingerprint = amount,
        store = self.0,
        transaction = tx,
        wait = "5s",
        terminal = Failure::is_final
    )]
    pub async fn transfer(
        &self,
        tx: &mut Transaction<'_, Postgres>,
        id: u8,
        amount: u32,
    ) -> Result<u32, Failure> {
        let done = tx.execute("SELECT 1").await;
        done.map(|_| amount).map_err(|_| Failure(false))
    }
}
