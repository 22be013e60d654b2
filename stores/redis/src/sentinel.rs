//! The master that sentinels name.

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisResult, TlsMode};

use super::failure::wrong_url;
use idem_core::StoreError;

/// The addresses of the sentinels, and their name for the master.
pub(super) struct Sentinels {
    service: String,
    nodes: Vec<ConnectionInfo>,
    master: SentinelNodeConnectionInfo,
}

impl Sentinels {
    /// The sentinels at these URLs. User, password, database and TLS of the first URL also apply to the
    /// master.
    pub(super) fn new(service: String, urls: &[String]) -> Result<Self, StoreError> {
        let nodes: Vec<ConnectionInfo> = urls
            .iter()
            .map(|url| url.as_str().into_connection_info().map_err(wrong_url))
            .collect::<Result<_, _>>()?;
        let Some(first) = nodes.first() else {
            return Err(StoreError::configuration("there must be the URL of at least one sentinel"));
        };
        let settings = first.redis_settings().clone();
        let master = SentinelNodeConnectionInfo::default().set_redis_connection_info(settings);
        let master = match first.addr() {
            ConnectionAddr::TcpTls { insecure: true, .. } => master.set_tls_mode(TlsMode::Insecure),
            ConnectionAddr::TcpTls { .. } => master.set_tls_mode(TlsMode::Secure),
            _ => master,
        };
        let sentinels = Self { service, nodes, master };
        sentinels.client().map_err(wrong_url)?;
        Ok(sentinels)
    }

    /// A client for one connection. Each connection needs its own client, because connecting borrows the
    /// client mutably. If all runtimes shared a client, a runtime whose threads are blocked would block the
    /// client for the other runtimes.
    pub(super) fn client(&self) -> RedisResult<SentinelClient> {
        let (nodes, service) = (self.nodes.clone(), self.service.clone());
        SentinelClient::build(nodes, service, Some(self.master.clone()), SentinelServerType::Master)
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::Sentinels;

    #[test]
    fn the_master_is_asked_over_tls_where_the_sentinels_are() {
        for (url, expected) in [
            ("redis://:secret@a:1/", "tls_mode: None"),
            ("rediss://:secret@a:1/", "tls_mode: Some(Secure)"),
            ("rediss://:secret@a:1/#insecure", "tls_mode: Some(Insecure)"),
        ] {
            let sentinels = Sentinels::new("master".to_owned(), &[url.to_owned()]).unwrap();
            // The client shows the TLS mode only in `Debug`.
            assert!(format!("{:?}", sentinels.master).contains(expected), "{url}");
        }
    }
}
