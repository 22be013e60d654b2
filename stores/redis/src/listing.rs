//! Walking through the keys with the store's prefix: `SCAN` on one master after another. Of each record, only the first
//! bytes and the length are read.
//!
//! If slots of a cluster move to another master during a walk, or a replica is promoted, the walk may miss the moved
//! keys, because the `SCAN` of a server only knows its own keys.

use std::collections::BTreeMap;

use redis::{Cmd, Pipeline, Value, cmd};

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

/// One page: one `SCAN` on one master, and one read of the keys that it found.
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
    for (key, head, length) in look(connection, node, keys).await? {
        match layout::decode_head(head, length) {
            Ok((record, bytes)) if request.takes(record.state) => {
                page.records.push(Listed::without_value(key, record, Some(bytes)));
            }
            Ok(_) => {}
            Err(_) => page.unreadable.push(key),
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

/// A slot of the master, and the position in its `SCAN`.
fn place(after: Option<&Cursor>) -> Option<(u16, Vec<u8>)> {
    let (slot, position) = after?.as_bytes().split_first_chunk()?;
    Some((u16::from_be_bytes(*slot), position.to_vec()))
}

/// The first bytes and the length of each of these keys that still exists. All are on one node.
async fn look(
    connection: &Connection,
    node: Node<'_>,
    keys: BTreeMap<Vec<u8>, RecordKey>,
) -> Result<Vec<(RecordKey, Vec<u8>, u64)>, StoreError> {
    let mut records = Vec::with_capacity(keys.len());
    if keys.is_empty() {
        return Ok(records);
    }
    let mut looks = Pipeline::new();
    for name in keys.keys() {
        let [head, length] = look_at(name);
        looks.add_command(head).add_command(length);
    }
    let mut answers = connection.ask_each(&looks, node).await?.into_iter();
    for (name, key) in keys {
        let pair = match (answers.next(), answers.next()) {
            (Some(Ok(head)), Some(Ok(length))) => vec![head, length],
            // The key is being moved to another node, or has another type by now.
            _ => {
                let [head, length] = look_at(&name).map(Request::plain);
                vec![connection.ask(&head).await?, connection.ask(&length).await?]
            }
        };
        let (head, length): (Vec<u8>, u64) = understood(Value::Array(pair))?;
        if !head.is_empty() {
            records.push((key, head, length));
        }
    }
    Ok(records)
}

fn look_at(name: &[u8]) -> [Cmd; 2] {
    let (mut head, mut length) = (cmd("GETRANGE"), cmd("STRLEN"));
    head.arg(name).arg(0).arg(layout::LONGEST_HEAD - 1);
    length.arg(name);
    [head, length]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_what_a_cursor_was_made_of() {
        let cursor = Cursor::from_bytes(vec![0x12, 0x34, b'1', b'7']);
        assert_eq!(place(Some(&cursor)), Some((0x1234, b"17".to_vec())));
        assert_eq!(place(Some(&Cursor::from_bytes(vec![1]))), None);
        assert_eq!(place(None), None);
    }

    #[test]
    fn the_servers_time_is_microseconds() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let time = |seconds| understood(Value::Array(vec![text(seconds), text("7")])).map(instant);
        assert_eq!(time("1700000000").unwrap(), Timestamp::from_micros(1_700_000_000_000_007));
        assert!(time("x").unwrap_err().is_outcome_unknown());
    }
}
