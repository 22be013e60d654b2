//! `MySqlStore`: one table of a MySQL or MariaDB database, any number of processes.
//!
//! Owns the public API. `builder` has the settings, `layout` the tables, `statements` the SQL. `server` says how the group commit runs a
//! batch: `change` decides and writes, `reading` only reads. `transaction` records in a caller's transaction. `deletion`, `listing` and
//! `inspection` serve operators, `rows` translates records. `db` has connections, errors, names of objects and the migration.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod change;
mod db;
mod deletion;
mod inspection;
mod layout;
mod listing;
mod reading;
mod rows;
mod server;
mod setting;
mod statements;
mod text;
mod transaction;

use std::fmt;
use std::sync::Arc;

use sqlx::MySqlPool;

pub use self::builder::MySqlStoreBuilder;
use self::setting::Setting;
use crate::db::connector;
use idem_core::inspection::Inspection;
use idem_core::listing::{List, Page};
use idem_core::protocol::{self, Record, Request};
use idem_core::{RecordKey, Store, StoreError, Waiters};
use idem_store_kit::own_runtime::apart;
use idem_store_kit::sql::SharedStore;

/// Keeps records in one table of a MariaDB database, version 10.6 or later, or of a MySQL database, version 8.0 or later: untested,
/// since nobody has run it on MySQL 8.
///
/// An acknowledged operation is committed, and survives what the server's own commits survive: with its usual
/// settings (`innodb_flush_log_at_trx_commit = 1`) a crash and a power cut. The clock is the server's, in UTC; time
/// zones do not matter, neither the server's nor a session's.
///
/// Operations that wait at the same moment share statements; an operation that comes alone is not delayed. The
/// store has connections of its own, at most [`connections`](MySqlStoreBuilder::connections), opened when they are
/// needed and closed when not. They live in a runtime of its own: a caller whose runtime is blocked keeps its lease, and one
/// store serves several runtimes. Operations that come alone use one more connection, in their caller's runtime, which
/// must have tokio's network. The store replaces a broken connection, and repeats the operations that were on it, within the
/// [`operation_timeout`](MySqlStoreBuilder::operation_timeout). It changes no session settings, so it works through a
/// pooler that shares sessions between its clients.
///
/// The first process that connects creates the tables: `idem_records`, `idem_records_steps` and
/// `idem_records_meta`. The store deletes expired records [from time to time](MySqlStoreBuilder::purge_every).
///
/// A handle is cheap to clone. When the last one is dropped, operations that were begun are still done.
#[derive(Clone)]
pub struct MySqlStore(Arc<SharedStore<Setting>>);

impl MySqlStore {
    /// Connects to the database of this URL, such as `mysql://user:password@host:3306/database`, with
    /// the default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Connects to the database of this pool, with connections of the store's own: the pool's live in the
    /// runtime they were opened in, and may all be in use.
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn from_pool(pool: &MySqlPool) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. Its parameters, such as `ssl-mode`, are
    /// [`sqlx::mysql::MySqlConnectOptions`]'s.
    pub fn builder(url: &str) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(connector::of_url(url))
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Ok(connector::of_pool(pool)))
    }
}

impl Store for MySqlStore {
    fn apply(
        &self,
        key: &RecordKey,
        request: Request,
    ) -> impl Future<Output = Result<protocol::Answer, StoreError>> + Send {
        if matches!(request, Request::RecordStep(_)) {
            let stepped = &self.0.records.server().stepped;
            stepped.put(stepped.mark(key));
        }
        self.0.records.apply(key, request)
    }

    async fn forget(&self, key: &RecordKey) -> Result<bool, StoreError> {
        self.0.records.forget(key).await
    }

    async fn get(&self, key: &RecordKey) -> Result<Option<Record>, StoreError> {
        self.0.records.get(key).await
    }

    async fn purge(&self, limit: usize) -> Result<usize, StoreError> {
        let queues = self.0.records.queues();
        apart(async move { deletion::purge(queues.server(), limit).await }).await
    }

    async fn list(&self, request: &List) -> Result<Page, StoreError> {
        let (queues, request) = (self.0.records.queues(), request.clone());
        apart(async move { listing::list(queues.server(), &request).await }).await
    }

    async fn inspect(&self) -> Result<Inspection, StoreError> {
        let queues = self.0.records.queues();
        apart(async move { inspection::look(&queues.server().connector).await }).await
    }

    fn max_result_bytes(&self) -> Option<usize> {
        Some(self.0.records.max_result_bytes)
    }

    fn waiters(&self) -> &Waiters {
        &self.0.waiters
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MySqlStore").field(&self.0.place).finish()
    }
}
