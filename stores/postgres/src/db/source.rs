//! The servers of a URL or a pool.

use std::fmt;
use std::str::FromStr as _;

use idem_core::StoreError;
use idem_store_kit::sql;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::failure;
use super::hosts::{self, Target};

/// The addresses of the servers, the credentials, and what a server must accept.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) servers: sql::Source<PgConnectOptions>,
    pub(super) target: Target,
}

impl Source {
    /// The servers of a URL.
    ///
    /// # Errors
    ///
    /// `Configuration` if the URL is not valid.
    pub fn of_url(url: &str) -> Result<Self, StoreError> {
        // The driver accepts any scheme. The text in the scheme's place may be a password, so the error does
        // not repeat it.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::configuration("the URL of the database must begin with `postgres://`"));
        }
        let (urls, target) = hosts::split(url)?;
        let options: Result<_, _> = urls.iter().map(|url| PgConnectOptions::from_str(url)).collect();
        let options = options.map_err(|error| failure::of_connect(&error).error)?;
        Ok(Self { servers: sql::Source::fixed(options), target })
    }

    /// The server of a pool. Each connection is opened with the options that the pool has at that time.
    pub fn of_pool(pool: &PgPool) -> Self {
        let pool = pool.clone();
        let servers = sql::Source::current(move || pool.connect_options().as_ref().clone());
        Self { servers, target: Target::Any }
    }

    /// Lets `refresh` complete the options before each connection is opened.
    pub fn refreshed<F, R, E>(self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, E>> + Send + 'static,
        E: fmt::Display,
    {
        Self { servers: self.servers.refreshed(refresh), ..self }
    }
}
