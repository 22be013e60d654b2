//! Where the servers are and who connects, as it is when a connection is opened: passwords and tokens change.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use idem_core::StoreError;

use super::hosts::{Host, Hosts};

type Refresh<O> = Arc<dyn Fn(O) -> BoxFuture<'static, Result<O, StoreError>> + Send + Sync>;

/// Where the servers are, and who connects.
#[derive(Clone)]
pub struct Source<O> {
    base: Base<O>,
    refresh: Option<Refresh<O>>,
    hosts: Arc<Hosts>,
}

#[derive(Clone)]
enum Base<O> {
    /// The options for each server.
    Fixed(Arc<[O]>),
    /// Those of a pool, whose owner may replace them.
    Current(Arc<dyn Fn() -> O + Send + Sync>),
}

impl<O> fmt::Debug for Source<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl<O: Clone + Default + 'static> Source<O> {
    /// These servers.
    #[must_use]
    pub fn fixed(options: Vec<O>) -> Self {
        Self { hosts: Hosts::new(options.len()), base: Base::Fixed(options.into()), refresh: None }
    }

    /// One server, whose options may be others for each connection.
    pub fn current(options: impl Fn() -> O + Send + Sync + 'static) -> Self {
        Self { hosts: Hosts::new(1), base: Base::Current(Arc::new(options)), refresh: None }
    }

    /// Lets `refresh` complete the options before each connection is opened.
    #[must_use]
    pub fn refreshed<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(O) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, E>> + Send + 'static,
        E: fmt::Display,
    {
        self.refresh = Some(Arc::new(move |options| {
            let refreshing = refresh(options);
            Box::pin(async move {
                refreshing.await.map_err(|error| {
                    StoreError::unavailable(format!(
                        "the options of the connection are not available: {error}"
                    ))
                })
            })
        }));
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

    /// The options for this server, before they are completed.
    pub(super) fn base(&self, host: &Host) -> O {
        match &self.base {
            Base::Fixed(options) => options.get(host.index()).cloned().unwrap_or_default(),
            Base::Current(options) => options(),
        }
    }

    /// The options for this server, before they are completed, for each server in the order of the URL.
    pub fn bases(&self) -> Vec<O> {
        let mut hosts: Vec<_> = self.in_turn().collect();
        hosts.sort_by_key(Host::index);
        hosts.iter().map(|host| self.base(host)).collect()
    }

    /// The options for a connection to this server.
    pub(super) fn options(&self, host: &Host) -> BoxFuture<'static, Result<O, StoreError>>
    where
        O: Send,
    {
        let base = self.base(host);
        match &self.refresh {
            Some(refresh) => refresh(base),
            None => Box::pin(std::future::ready(Ok(base))),
        }
    }
}
