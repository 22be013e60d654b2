//! Walking through the keys with the store's prefix: `SCAN` on one master after another. Of each record, only
//! the first bytes and the length are read.
//!
//! The `SCAN` of a server knows only the server's own keys. So if slots of a cluster move to another master
//! during a walk, the walk may miss the moved keys. It may also miss keys if a replica is promoted.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::{Pipeline, Value, cmd};

use super::connection::{Connection, Node};
use super::failure::understood;
use super::layout;
use super::name::Prefix;
use super::scripts::Request;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Listed, Page};
use idem_core::protocol::Timestamp;

/// An answer to `TIME`: seconds and microseconds.
type Time = (u64, u64);
/// An answer to `SCAN`: the next position, and names.
type Scanned = (Vec<u8>, Vec<Vec<u8>>);

/// One page: one `SCAN` on one master, and two reads for each key that the `SCAN` found.
pub(super) async fn page(
    connection: &Connection,
    prefix: &Prefix,
    request: &List,
) -> Result<Page, StoreError> {
    let masters = connection.masters().await?;
    let first = masters.first().copied().unwrap_or_default();
    let (slot, position) = place(request.after.as_ref()).unwrap_or((first, b"0".to_vec()));
    let node = Node::OfSlot(slot);
    let mut both = Pipeline::new();
    both.cmd("TIME");
    both.cmd("SCAN").arg(&position).arg("MATCH").arg(prefix.pattern(request.scope.as_ref()));
    both.arg("COUNT").arg(request.looked_at()).arg("TYPE").arg("string");
    let answers = connection.ask_each(&both, node).await?.into_iter().collect::<Result<_, _>>()?;
    let (time, (position, names)): (Time, Scanned) = understood(Value::Array(answers))?;
    let mut page = Page::new(instant(time));
    let keys: BTreeMap<Vec<u8>, RecordKey> = names
        .into_iter()
        .filter_map(|name| prefix.key(&name).map(|key| (name, key)))
        .filter(|(_, key)| request.scope.as_ref().is_none_or(|scope| scope == key.scope()))
        .collect();
    let looks = join_all(keys.iter().map(|(name, key)| async move { (key, look(connection, name).await) }));
    for (key, looked) in looks.await {
        let (head, length) = looked?;
        if head.is_empty() {
            // The key was deleted in the meantime.
            continue;
        }
        match layout::decode_head(head, length) {
            Ok((record, bytes)) if request.takes(record.state) => {
                page.records.push(Listed::without_value(key.clone(), record, Some(bytes)));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(key.clone()),
        }
    }
    let next = match &*position {
        b"0" => masters.into_iter().find(|master| *master > slot).map(|master| (master, b"0".to_vec())),
        _ => Some((slot, position)),
    };
    page.next = next
        .map(|(slot, position)| Cursor::from_bytes(slot.to_be_bytes().into_iter().chain(position).collect()));
    Ok(page)
}

/// The clock of one server.
pub(super) async fn now(connection: &Connection) -> Result<Timestamp, StoreError> {
    Ok(instant(understood(connection.ask(&Request::plain(cmd("TIME"))).await?)?))
}

const fn instant((seconds, micros): Time) -> Timestamp {
    Timestamp::from_micros(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// What a cursor contains: a slot of a master, and the position in that master's `SCAN`.
fn place(after: Option<&Cursor>) -> Option<(u16, Vec<u8>)> {
    let (slot, position) = after?.as_bytes().split_first_chunk()?;
    Some((u16::from_be_bytes(*slot), position.to_vec()))
}

/// The first bytes and the length of the value of this key; empty if the key does not exist any more.
async fn look(connection: &Connection, name: &[u8]) -> Result<(Vec<u8>, u64), StoreError> {
    let (mut head, mut length) = (cmd("GETRANGE"), cmd("STRLEN"));
    head.arg(name).arg(0).arg(layout::LONGEST_HEAD - 1);
    length.arg(name);
    let [head, length] = [head, length].map(Request::plain);
    let answers = vec![connection.ask(&head).await?, connection.ask(&length).await?];
    understood(Value::Array(answers))
}
