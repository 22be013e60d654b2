//! Where the servers are and who connects, as it is when a connection is opened: passwords and tokens change.

use std::str::FromStr as _;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;

use super::failure;
use super::hosts::{self, Host, Hosts, Target};
use idem_core::StoreError;

type Refresh =
    Arc<dyn Fn(PgConnectOptions) -> BoxFuture<'static, Result<PgConnectOptions, StoreError>> + Send + Sync>;

/// Where the servers are, and who connects.
#[derive(Clone)]
pub(crate) struct Source {
    base: Base,
    refresh: Option<Refresh>,
    hosts: Arc<Hosts>,
    target: Target,
}

#[derive(Clone)]
enum Base {
    /// The options for each server.
    Fixed(Arc<[PgConnectOptions]>),
    /// Whose options its owner may replace.
    Pool(PgPool),
}

impl Source {
    /// The servers of a URL.
    pub(crate) fn of_url(url: &str) -> Result<Self, StoreError> {
        // The driver accepts any scheme. What is there instead may be a password, so it is not repeated.
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(StoreError::configuration("the URL of the database must begin with `postgres://`"));
        }
        let (urls, target) = hosts::split(url)?;
        let options = urls.iter().map(|url| PgConnectOptions::from_str(url));
        let options: Vec<_> =
            options.collect::<Result<_, _>>().map_err(|error| failure::of_connect(&error))?;
        Ok(Self {
            hosts: Hosts::new(options.len()),
            base: Base::Fixed(options.into()),
            refresh: None,
            target,
        })
    }

    /// The options that the pool has at each time.
    pub(crate) fn of_pool(pool: &PgPool) -> Self {
        let base = Base::Pool(pool.clone());
        Self { base, refresh: None, hosts: Hosts::new(1), target: Target::Any }
    }

    /// Has `refresh` complete the options before each connection is opened.
    pub(crate) fn refreshed<F, R, E>(mut self, refresh: F) -> Self
    where
        F: Fn(PgConnectOptions) -> R + Send + Sync + 'static,
        R: Future<Output = Result<PgConnectOptions, E>> + Send + 'static,
        E: std::fmt::Display,
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
    pub(super) fn in_turn(&self) -> impl Iterator<Item = Host> + use<> {
        self.hosts.in_turn()
    }

    /// The server that a connection tries first.
    #[cfg(feature = "outbox")]
    pub(super) fn first(&self) -> Host {
        self.hosts.first()
    }

    /// What a server must accept.
    pub(super) const fn target(&self) -> Target {
        self.target
    }

    fn base(&self, host: &Host) -> PgConnectOptions {
        match &self.base {
            Base::Fixed(options) => options.get(host.index()).cloned().unwrap_or_default(),
            Base::Pool(pool) => pool.connect_options().as_ref().clone(),
        }
    }

    /// The options for a connection to this server.
    pub(super) async fn options(&self, host: &Host) -> Result<PgConnectOptions, StoreError> {
        match &self.refresh {
            Some(refresh) => refresh(self.base(host)).await,
            None => Ok(self.base(host)),
        }
    }

    /// Where a server is.
    pub(super) fn address(&self, host: &Host) -> String {
        let options = self.base(host);
        match options.get_socket() {
            Some(socket) => socket.display().to_string(),
            None => format!("{}:{}", options.get_host(), options.get_port()),
        }
    }

    /// Where servers and database are: no user, no password.
    pub(crate) fn place(&self) -> String {
        let mut hosts: Vec<_> = self.in_turn().collect();
        hosts.sort_by_key(Host::index);
        let addresses: Vec<_> = hosts.iter().map(|host| self.address(host)).collect();
        let options = hosts.first().map(|host| self.base(host)).unwrap_or_default();
        let database = options.get_database().unwrap_or(options.get_username());
        format!("{} database {database}", addresses.join(","))
    }
}
