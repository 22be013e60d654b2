//! Connections to a cluster. The client keeps a connection to each node and follows slots that move.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, SingleNodeRoutingInfo, SlotAddr};
use redis::{Pipeline, RedisResult, Value};

use super::connection::Node;
use super::failure::{self, misunderstood, understood, wrong_url};
use idem_core::StoreError;
use idem_store_kit::own_runtime::apart;
use idem_store_kit::retry::retried;

/// Connects to the cluster that these nodes belong to.
pub(super) async fn connect(
    nodes: Vec<String>,
    time: Duration,
    answer_within: Duration,
) -> Result<ClusterConnection, StoreError> {
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
}

/// Sends all commands on one connection, in this order, with no other command in between.
pub(super) async fn send_all(
    cluster: &ClusterConnection,
    commands: &Pipeline,
    node: Node<'_>,
) -> RedisResult<Vec<Value>> {
    let route = match node {
        Node::OfKey(key) => Route::with_key(key, SlotAddr::Master),
        Node::OfSlot(slot) => Route::new(slot, SlotAddr::Master),
    };
    let node = SingleNodeRoutingInfo::SpecificNode(route);
    cluster.clone().route_pipeline(commands.clone(), 0, commands.len(), node).await
}

/// The lowest slot of each master, in the answer to `CLUSTER SLOTS`.
pub(super) fn masters(slots: Value) -> Result<BTreeSet<u16>, StoreError> {
    let mut lowest = BTreeMap::new();
    for range in understood::<Vec<Vec<Value>>>(slots)? {
        let [Value::Int(first), _, Value::Array(master), ..] = &*range else { return Err(misunderstood()) };
        let first = u16::try_from(*first).map_err(|_| misunderstood())?;
        // Address and port identify a master.
        let lowest = lowest.entry(format!("{:?}", master.get(..2))).or_insert(first);
        *lowest = first.min(*lowest);
    }
    Ok(lowest.into_values().collect())
}
