//! The masters of a cluster, by the slots they serve.

use std::collections::BTreeMap;

use redis::{Value, cmd};

use super::connection::Connection;
use super::failure::misunderstood;
use super::scripts::Request;
use idem_core::StoreError;

/// The lowest slot of each master, in order; only 0 if there is a single server.
pub(super) async fn masters(connection: &Connection) -> Result<Vec<u16>, StoreError> {
    if !connection.is_cluster() {
        return Ok(vec![0]);
    }
    let mut slots = cmd("CLUSTER");
    slots.arg("SLOTS");
    let Value::Array(ranges) = connection.ask(&Request::plain(slots)).await? else {
        return Err(misunderstood());
    };
    let mut lowest = BTreeMap::new();
    for range in ranges {
        let Value::Array(parts) = range else { return Err(misunderstood()) };
        let [Value::Int(first), _, Value::Array(master), ..] = &*parts else { return Err(misunderstood()) };
        let first = u16::try_from(*first).map_err(|_| misunderstood())?;
        // Address and port identify a master.
        let name = format!("{:?}", master.get(..2));
        let lowest = lowest.entry(name).or_insert(first);
        *lowest = first.min(*lowest);
    }
    let mut masters: Vec<u16> = lowest.into_values().collect();
    masters.sort_unstable();
    Ok(masters)
}
