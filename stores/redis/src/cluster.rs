//! Connections to a cluster. The client keeps a connection to each node and follows slots that move.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClient;

use super::connection::Connection;
use super::failure;
use super::failure::wrong_url;
use idem_core::StoreError;
use idem_core::support::own_runtime::apart;
use idem_core::support::retry::retried;

/// Connects to the cluster that these nodes belong to.
pub(super) async fn connect(
    nodes: Vec<String>,
    time: Duration,
    answer_within: Duration,
) -> Result<Connection, StoreError> {
    let client = ClusterClient::builder(nodes)
        .connection_timeout(answer_within)
        .response_timeout(answer_within)
        .overall_response_timeout(Some(time))
        .build()
        .map_err(wrong_url)?;
    apart(async move {
        retried(time, || async { client.get_async_connection().await.map_err(failure::connecting) }).await
    })
    .await
    .map(|connection| Connection::Given(Arc::new(connection)))
}
