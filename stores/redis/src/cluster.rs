//! Connections to a cluster. The client keeps a connection to each node and follows slots that move.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{Pipeline, RedisResult, Value};

use super::connection::{Connection, Node};
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
    .map(Connection::Cluster)
}

/// Sends all of them on one connection, in this order, with nothing in between.
pub(super) async fn ask_all(
    cluster: &ClusterConnection,
    commands: &Pipeline,
    count: usize,
    node: Node<'_>,
) -> RedisResult<Vec<Value>> {
    let route = match node {
        Node::OfKey(key) => Route::with_key(key, SlotAddr::Master),
        Node::OfSlot(slot) => Route::new(slot, SlotAddr::Master),
    };
    let node = SingleNodeRoutingInfo::SpecificNode(route);
    cluster.clone().route_pipeline(commands.clone(), 0, count, node).await
}
