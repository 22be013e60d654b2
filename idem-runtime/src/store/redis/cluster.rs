//! A cluster. Its client keeps a connection to each node and follows slots that move.

use std::sync::Arc;
use std::time::Duration;

use redis::cluster::ClusterClient;

use super::builder::wrong_url;
use super::failure;
use super::link::Link;
use crate::error::StoreError;
use crate::store::own_runtime::apart;
use crate::store::retry::retried;

/// Connects to the cluster that these nodes belong to.
pub(super) async fn connect(
    nodes: Vec<String>,
    time: Duration,
    answer_within: Duration,
) -> Result<Link, StoreError> {
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
    .map(|connection| Link::Given(Arc::new(connection)))
}
