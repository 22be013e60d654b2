//! A database with effects and records.

use std::sync::Arc;

use idem_outbox::Outbox;
use idem_postgres::PostgresStore;
use idem_test_servers::{PgBouncer, Postgres};
use tokio::sync::Notify;

pub(crate) use crate::support::{Failure, released};
pub(crate) use idem_macros::idempotent;

/// What a body does after its effect.
#[derive(Clone, Default)]
pub(crate) enum Then {
    #[default]
    Return,
    Fail,
    FailForGood,
    Panic,
    /// Reports that it has begun, and then waits.
    Wait(Arc<Notify>),
    /// Runs a statement, and ignores its result.
    Run(&'static str),
}

pub(crate) struct Bank {
    pooler: Option<PgBouncer>,
    pub(crate) server: Postgres,
    pub(crate) store: PostgresStore,
    pub(crate) outbox: Outbox,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        Self::behind(Postgres::shared(), None).await
    }

    /// A bank whose clients, including the store and the outbox, connect through a pooler in transaction
    /// mode.
    pub(crate) async fn behind_a_pooler() -> Self {
        Self::behind_a_pooler_with("").await
    }

    /// As [`behind_a_pooler`](Self::behind_a_pooler), with a pooler that makes sessions forget the statements
    /// that their clients prepared.
    pub(crate) async fn behind_a_pooler_that_discards() -> Self {
        Self::behind_a_pooler_with("server_reset_query=DISCARD ALL\nserver_reset_query_always=1").await
    }

    async fn behind_a_pooler_with(lines: &str) -> Self {
        let server = Postgres::shared();
        // One session for each caller of a test, and one for the store. On the store's session, the first
        // call stores the fact that callers use transactions.
        let settings = format!("default_pool_size=5\n{lines}");
        let pooler = PgBouncer::start(&server, &settings);
        Self::behind(server, Some(pooler)).await
    }

    async fn behind(server: Postgres, pooler: Option<PgBouncer>) -> Self {
        let url = pooler.as_ref().map_or_else(|| server.url(), PgBouncer::url);
        let store = PostgresStore::connect(&url).await.unwrap();
        let outbox = Outbox::connect(&url).await.unwrap();
        let _ = server.sql("create table effects (id text not null)");
        Self { pooler, server, store, outbox }
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        self.pooler.as_ref().map_or_else(|| self.server.url(), PgBouncer::url)
    }

    /// How many effects and records there are.
    pub(crate) fn counts(&self) -> String {
        self.server.sql("select (select count(*) from effects), (select count(*) from idem_records)")
    }

    /// How many effects and records of this order there are.
    pub(crate) fn of(&self, order: &str) -> String {
        self.server.sql(&format!(
            "select (select count(*) from effects where id = '{order}'), \
             (select count(*) from idem_records_readable where key = 'order/{order}')"
        ))
    }
}
