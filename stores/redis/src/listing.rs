//! Walking through the keys with the store's prefix: `SCAN` on one master after another. Of each record, only the first
//! bytes and the length are read.
//!
//! If slots of a cluster move to another master during a walk, or a replica is promoted, the walk may miss the moved
//! keys, because the `SCAN` of a server only knows its own keys.

use std::collections::BTreeMap;

use redis::{Cmd, Pipeline, Value, cmd};

use super::connection::{Connection, Node};
use super::failure::misunderstood;
use super::layout;
use super::masters::masters;
use super::name::Prefix;
use super::scripts::Request;
use idem_core::RecordKey;
use idem_core::StoreError;
use idem_core::listing::{Cursor, List, Listed, Page};
use idem_core::protocol::Timestamp;

/// One page: one `SCAN` on one master, and one read of the keys that it found.
pub(super) async fn page(
    connection: &Connection,
    prefix: &Prefix,
    request: &List,
) -> Result<Page, StoreError> {
    let masters = masters(connection).await?;
    let first = masters.first().copied().unwrap_or_default();
    let (slot, position) = place(request.after.as_ref()).unwrap_or((first, b"0".to_vec()));
    let node = Node::OfSlot(slot);
    let mut scan = cmd("SCAN");
    scan.arg(&position).arg("MATCH").arg(prefix.pattern(request.scope.as_ref()));
    scan.arg("COUNT").arg(request.looked_at()).arg("TYPE").arg("string");
    let answers = connection.ask_all(&both(cmd("TIME"), scan), 2, node).await?;
    let Ok([time, scanned]) = <[Value; 2]>::try_from(answers) else { return Err(misunderstood()) };
    let (position, names) = scanned_of(scanned).ok_or_else(misunderstood)?;
    let mut page = Page::new(now_of(&time).ok_or_else(misunderstood)?);
    let mut keys: BTreeMap<Vec<u8>, RecordKey> = names
        .into_iter()
        .filter_map(|name| prefix.key(&name).map(|key| (name, key)))
        .filter(|(_, key)| request.scope.as_ref().is_none_or(|scope| scope == key.scope()))
        .collect();
    for (name, head, length) in look(connection, node, keys.keys()).await? {
        // A record that no longer exists has an empty head.
        let Some(key) = keys.remove(&name).filter(|_| !head.is_empty()) else { continue };
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
    now_of(&connection.ask(&Request::plain(cmd("TIME"))).await?).ok_or_else(misunderstood)
}

/// A slot of the master, and the position in its `SCAN`.
fn place(after: Option<&Cursor>) -> Option<(u16, Vec<u8>)> {
    let (slot, position) = after?.as_bytes().split_first_chunk()?;
    Some((u16::from_be_bytes(*slot), position.to_vec()))
}

fn both(first: Cmd, second: Cmd) -> Pipeline {
    let mut both = Pipeline::new();
    both.add_command(first).add_command(second);
    both
}

fn bytes(value: Value) -> Option<Vec<u8>> {
    match value {
        Value::BulkString(bytes) => Some(bytes),
        _ => None,
    }
}

fn scanned_of(answer: Value) -> Option<(Vec<u8>, Vec<Vec<u8>>)> {
    let Value::Array(parts) = answer else { return None };
    let Ok([position, Value::Array(names)]) = <[Value; 2]>::try_from(parts) else { return None };
    Some((bytes(position)?, names.into_iter().map(bytes).collect::<Option<_>>()?))
}

fn now_of(time: &Value) -> Option<Timestamp> {
    let Value::Array(parts) = time else { return None };
    let number = |part: &Value| match part {
        Value::BulkString(text) => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
        _ => None,
    };
    let [seconds, micros] = parts.as_slice() else { return None };
    Some(Timestamp::from_micros(number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)?))
}

/// The first bytes and the length of each of these keys, which are on one node.
async fn look(
    connection: &Connection,
    node: Node<'_>,
    names: impl Iterator<Item = &Vec<u8>>,
) -> Result<Vec<(Vec<u8>, Vec<u8>, u64)>, StoreError> {
    let names: Vec<Vec<u8>> = names.cloned().collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let mut looks = Pipeline::new();
    for name in &names {
        let [head, length] = look_at(name);
        looks.add_command(head).add_command(length);
    }
    let mut answers = connection.ask_each(&looks, names.len() * 2, node).await?.into_iter();
    let mut records = Vec::with_capacity(names.len());
    for name in names {
        let pair = match (answers.next(), answers.next()) {
            (Some(Value::BulkString(head)), Some(Value::Int(length))) => (head, length),
            // The key is being moved to another node, or has another type by now.
            (Some(Value::ServerError(_)), Some(_)) | (Some(_), Some(Value::ServerError(_))) => {
                let [head, length] = look_at(&name);
                match (
                    connection.ask(&Request::plain(head)).await?,
                    connection.ask(&Request::plain(length)).await?,
                ) {
                    (Value::BulkString(head), Value::Int(length)) => (head, length),
                    _ => return Err(misunderstood()),
                }
            }
            _ => return Err(misunderstood()),
        };
        records.push((name, pair.0, u64::try_from(pair.1).unwrap_or(0)));
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
        let time = Value::Array(vec![text("1700000000"), text("7")]);
        assert_eq!(now_of(&time), Some(Timestamp::from_micros(1_700_000_000_000_007)));
        assert_eq!(now_of(&Value::Array(vec![text("x"), text("7")])), None);
    }
}
