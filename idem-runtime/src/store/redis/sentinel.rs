//! The master that sentinels name.

use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{ConnectionInfo, IntoConnectionInfo as _};

use super::builder::wrong_url;
use crate::error::StoreError;

/// A client that finds the master of `service`. User, password, database and TLS of the first sentinel's URL
/// are the master's too.
pub(super) fn client(service: String, sentinels: Vec<String>) -> Result<SentinelClient, StoreError> {
    let sentinels: Vec<ConnectionInfo> = sentinels
        .into_iter()
        .map(|url| url.into_connection_info().map_err(wrong_url))
        .collect::<Result<_, _>>()?;
    let Some(first) = sentinels.first() else {
        return Err(StoreError::configuration("there must be the URL of at least one sentinel"));
    };
    let node =
        SentinelNodeConnectionInfo::default().set_redis_connection_info(first.redis_settings().clone());
    SentinelClient::build(sentinels, service, Some(node), SentinelServerType::Master).map_err(wrong_url)
}
