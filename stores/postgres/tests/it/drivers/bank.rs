//! A database with effects and records, and a function's error.

use std::sync::Arc;

use idem_postgres::PostgresStore;
use idem_postgres::outbox::Outbox;
use idem_test_servers::Postgres;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

pub(crate) use idem_macros::idempotent;

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

impl Failure {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Idem(error) => error.kind().as_str(),
            Self::Transient | Self::Final => "body",
            Self::Sql(_) => "sql",
        }
    }

    pub(crate) const fn is_final(&self) -> bool {
        matches!(self, Self::Final)
    }
}

/// What a body does after its effect.
#[derive(Clone, Default)]
pub(crate) enum Then {
    #[default]
    Return,
    Fail,
    FailForGood,
    Panic,
    /// Waits, after it has said that it has begun.
    Wait(Arc<Notify>),
    /// Runs a statement, whatever comes of it.
    Run(&'static str),
}

pub(crate) struct Bank {
    pub(crate) server: Postgres,
    pub(crate) store: PostgresStore,
    pub(crate) outbox: Outbox,
}

impl Bank {
    pub(crate) async fn open() -> Self {
        Self::at(Postgres::start(), None).await
    }

    /// A store and an outbox that reach the server by this URL.
    pub(crate) async fn at(server: Postgres, url: Option<&str>) -> Self {
        let own = server.url();
        let url = url.unwrap_or(&own);
        let store = PostgresStore::connect(url).await.unwrap();
        let outbox = Outbox::connect(url).await.unwrap();
        let _ = server.sql("create table effects (id text not null)");
        Self { server, store, outbox }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// How many effects and records there are.
    pub(crate) fn counts(&self) -> String {
        self.server.sql("select (select count(*) from effects), (select count(*) from idem_records)")
    }

    /// Whether there are effects of this order, and whether there is a record.
    pub(crate) fn of(&self, order: &str) -> String {
        self.server.sql(&format!(
            "select (select count(*) from effects where id = '{order}'), \
             (select count(*) from idem_records_readable where key = 'order/{order}')"
        ))
    }
}
