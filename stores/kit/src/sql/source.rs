//! The addresses of the servers, and the credentials. The store reads both each time it opens a connection,
//! because passwords and tokens change.

use std::fmt;
use std::future::ready;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use idem_core::StoreError;

use super::hosts::{Host, Hosts};

type Refresh<O> = Arc<dyn Fn(O) -> BoxFuture<'static, Result<O, StoreError>> + Send + Sync>;

/// The addresses of the servers, and the credentials.
#[derive(Clone)]
pub struct Source<O> {
    /// The options for the server with this number, before `refresh` completes them.
    base: Arc<dyn Fn(usize) -> O + Send + Sync>,
    refresh: Refresh<O>,
    hosts: Arc<Hosts>,
}

impl<O> fmt::Debug for Source<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl<O: Clone + Send + Sync + 'static> Source<O> {
    fn new(count: usize, base: impl Fn(usize) -> O + Send + Sync + 'static) -> Self {
        let refresh: Refresh<O> = Arc::new(|options| Box::pin(ready(Ok(options))));
        Self { base: Arc::new(base), refresh, hosts: Hosts::new(count) }
    }

    /// A source of these servers.
    #[must_use]
    pub fn fixed(options: Vec<O>) -> Self {
        Self::new(options.len(), move |server| options[server].clone())
    }

    /// One server. The store calls `options` for each connection, because the options may change. For
    /// example, the owner of a pool may replace the pool's options.
    pub fn current(options: impl Fn() -> O + Send + Sync + 'static) -> Self {
        Self::new(1, move |_| options())
    }

    /// Lets `refresh` complete the options before each connection is opened.
    #[must_use]
    pub fn refreshed<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(O) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.refresh = Arc::new(move |options| {
            let refreshing = refresh(options);
            Box::pin(async move {
                refreshing.await.map_err(|error| {
                    StoreError::unavailable(format!(
                        "the options of the connection are not available: {error}"
                    ))
                })
            })
        });
        self
    }

    /// The servers in the order in which a connection tries them.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = Host> + use<O> {
        self.hosts.in_turn()
    }

    /// The server that a connection tries first.
    pub(super) fn first(&self) -> Host {
        self.hosts.first()
    }

    /// The options for the server with this number, before `refresh` completes them.
    pub(super) fn base(&self, server: usize) -> O {
        (self.base)(server)
    }

    /// The options for each server in the order of the URL, before `refresh` completes them.
    pub fn bases(&self) -> Vec<O> {
        (0..self.hosts.count).map(|server| self.base(server)).collect()
    }

    /// The options for a connection to this server.
    pub(super) fn options(&self, host: &Host) -> BoxFuture<'static, Result<O, StoreError>> {
        (self.refresh)(self.base(host.index()))
    }
}
