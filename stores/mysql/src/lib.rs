//! `MySqlStore`: keeps records in tables of a MySQL or MariaDB database, for any number of processes.
//!
//! Owns the public API. `builder` has the settings, `layout` the tables, `statements` the SQL. `server` says
//! how the group commit runs a batch: `change` decides and writes, `reading` only reads. `transaction` writes
//! records in a caller's transaction. `housekeeping` and `inspection` serve operators. `rows` translates
//! records. `db` has connections, errors and the migration of the tables.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod change;
mod db;
mod housekeeping;
mod inspection;
mod layout;
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
use idem_core::StoreError;
use idem_store_kit::sql::SharedStore;

/// Keeps records in tables of a MariaDB database, version 10.6 or later, or of a MySQL database, version 8.0
/// or later. On MySQL the store is untested.
///
/// An acknowledged operation is committed, and is as durable as the server's own commits. With the usual
/// settings (`innodb_flush_log_at_trx_commit = 1`), it survives a crash and a power cut. Leases and expiry
/// follow the server's clock in UTC, whatever the time zones of the server and of the sessions.
///
/// Operations that wait at the same moment share statements; an operation that comes alone is not delayed.
/// The store opens its own connections when it needs them, and closes unused connections. For each runtime
/// that calls the store, it opens at most [`connections`](MySqlStoreBuilder::connections). A runtime that
/// calls the store should have tokio's network enabled. Without it, a task of the store panics once in that
/// runtime, and the store then uses its own runtime. Renewals, steps, releases and retries use the
/// connections of the stores' own runtime, so a caller whose runtime is blocked keeps its lease. The store
/// replaces a broken connection, and repeats its operations within the
/// [`operation_timeout`](MySqlStoreBuilder::operation_timeout). Operations change no session settings, so the
/// store works through a pooler that shares sessions between its clients.
///
/// The first process that connects creates the tables: `idem_records`, `idem_records_steps` and
/// `idem_records_meta`. The store deletes expired records [from time to
/// time](MySqlStoreBuilder::purge_every).
///
/// A handle is cheap to clone. When the last handle is dropped, operations that have started are still
/// completed.
#[derive(Clone)]
pub struct MySqlStore(Arc<SharedStore<Setting>>);

idem_store_kit::store_by!(MySqlStore, 0);

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

    /// Connects to the database of this pool. The store opens separate connections, because the pool's
    /// connections belong to the runtime that opened them, and may all be in use.
    ///
    /// # Errors
    ///
    /// As [`MySqlStoreBuilder::connect`].
    pub async fn from_pool(pool: &MySqlPool) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. The URL may have the parameters of
    /// [`sqlx::mysql::MySqlConnectOptions`], such as `ssl-mode`.
    pub fn builder(url: &str) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(connector::of_url(url))
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &MySqlPool) -> MySqlStoreBuilder {
        MySqlStoreBuilder::new(Ok(connector::of_pool(pool)))
    }
}

impl fmt::Debug for MySqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MySqlStore").field(&self.0.place).finish()
    }
}
