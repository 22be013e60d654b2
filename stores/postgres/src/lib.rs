//! `PostgresStore`: one table of a database, any number of processes.
//!
//! Owns the public API. `builder` has the settings, `layout` the tables, and `statements` the SQL. Operations
//! wait in the group commit of the stores' kit, and `server` says how a batch runs: by `claims`, by
//! `held_claims` (renewals, steps, results) or by `compare_and_swap` (releases, resolutions, reads).
//! `transaction` records in a caller's transaction through a `driver`. `housekeeping` and `inspection` serve
//! operators. `rows` translates records. `db` has the parts that the store shares with crates that have their
//! own tables beside the records: connections, errors, names of objects and migrations.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod builder;
mod claims;
mod compare_and_swap;
pub mod db;
pub mod driver;
mod held_claims;
mod housekeeping;
mod inspection;
mod layout;
mod rows;
mod server;
mod statements;
mod transaction;

use std::fmt;
use std::sync::Arc;

use sqlx::PgPool;

pub use self::builder::PostgresStoreBuilder;
use self::server::Setting;
use crate::db::source::Source;
use idem_core::StoreError;
use idem_store_kit::sql::SharedStore;

/// Keeps records in one table of a PostgreSQL database, version 12 or later.
///
/// An acknowledged operation is committed, and is as durable as the server's own commits. With the usual
/// settings (`fsync` and `synchronous_commit` on), it survives a crash and a power cut. Leases and expiry
/// follow the server's clock.
///
/// Operations that wait at the same moment share one statement and one commit. An operation that comes alone
/// is not delayed. If many operations run, a new one waits for them, for at most 20 milliseconds if a
/// connection is free.
///
/// The store opens its own connections when it needs them, and closes unneeded ones. It opens at most
/// [`connections`](PostgresStoreBuilder::connections) for each runtime that calls it. Renewals, releases and
/// retries use the connections of the stores' own runtime, so a caller whose runtime is blocked keeps its
/// lease. The store replaces a broken connection, and repeats the operations that were on it, within the
/// [`operation_timeout`](PostgresStoreBuilder::operation_timeout).
///
/// The first process that connects creates the table (`idem_records`, with `idem_records_meta` beside it) and
/// a view of it for people, `idem_records_readable`. The store deletes expired records
/// [from time to time](PostgresStoreBuilder::purge_every).
///
/// A handle is cheap to clone. When the last handle is dropped, operations that have started are still
/// completed.
#[derive(Clone)]
pub struct PostgresStore(Arc<SharedStore<Setting>>);

idem_store_kit::store_by!(PostgresStore, 0);

impl PostgresStore {
    /// Connects to the database of this URL, such as `postgres://user:password@host:5432/database`, with the
    /// default settings of a [`builder`](Self::builder).
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Connects to the database of this pool. The store opens separate connections, because the pool's
    /// connections belong to the runtime that opened them, and may all be in use.
    ///
    /// # Errors
    ///
    /// As [`PostgresStoreBuilder::connect`].
    pub async fn from_pool(pool: &PgPool) -> Result<Self, StoreError> {
        Self::builder_from_pool(pool).connect().await
    }

    /// Sets up how to connect to the database of this URL. The URL may have the parameters of
    /// [`sqlx::postgres::PgConnectOptions`], such as `sslmode`.
    ///
    /// The URL may name several servers: one primary and its replicas. The parameter `target_session_attrs`
    /// says which server the store needs: `read-write`, `primary`, or `any` (the default). The store uses the
    /// first server that meets this condition, and moves to another when the roles change:
    ///
    /// ```
    /// # use idem_postgres::PostgresStore;
    /// PostgresStore::builder("postgres://shop@db1:5432,db2:5432/shop?target_session_attrs=read-write");
    /// ```
    pub fn builder(url: &str) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Source::of_url(url))
    }

    /// Sets up how to connect to the database of this pool.
    pub fn builder_from_pool(pool: &PgPool) -> PostgresStoreBuilder {
        PostgresStoreBuilder::new(Ok(Source::of_pool(pool)))
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresStore").field(&self.0.place).finish()
    }
}
