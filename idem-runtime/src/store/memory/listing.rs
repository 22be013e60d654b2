//! Walking through a `MemoryStore`: shard by shard, and within a shard by scope and key.
//!
//! A page locks one shard at a time, so that no caller waits for the whole store.

use super::{MemoryStore, Slot, lock};
use idem_core::RecordKey;
use idem_core::listing::{Cursor, List, Listed, Page};

/// Where to continue: the shard, and the name after which.
fn place(after: Option<&Cursor>) -> (usize, Option<(String, String)>) {
    let Some((shard, rest)) = after.and_then(|after| after.as_bytes().split_first()) else {
        return (0, None);
    };
    let rest = Cursor::from_bytes(rest.to_vec());
    (usize::from(*shard), rest.key().map(|(scope, key)| (scope.to_owned(), key.to_owned())))
}

fn cursor(shard: usize, behind: Option<&RecordKey>) -> Cursor {
    let mut bytes = vec![u8::try_from(shard).unwrap_or(u8::MAX)];
    bytes.extend(behind.map(|key| Cursor::behind(key).as_bytes().to_vec()).unwrap_or_default());
    Cursor::from_bytes(bytes)
}

fn parts(key: &RecordKey) -> (&str, &str) {
    (key.scope().as_str(), key.key().as_str())
}

pub(super) fn list(store: &MemoryStore, request: &List) -> Page {
    let (first, mut behind) = place(request.after.as_ref());
    let shards = &store.0.shards;
    let mut page = Page::new(store.now());
    let mut left = request.looked_at();
    for (number, shard) in shards.iter().enumerate().skip(first) {
        let shard = lock(shard);
        let behind = behind.take();
        let mut slots: Vec<&Slot> = shard
            .slots
            .iter()
            .map(|(_, slot)| slot)
            .filter(|slot| request.scope.as_ref().is_none_or(|scope| scope == slot.key.scope()))
            .filter(|slot| behind.as_ref().is_none_or(|(scope, name)| parts(&slot.key) > (scope, name)))
            .collect();
        let is_cut = slots.len() > left;
        if is_cut {
            // Only the records of this page are sorted, because the shard is locked and much larger than a page.
            slots.select_nth_unstable_by_key(left, |slot| parts(&slot.key));
            slots.truncate(left);
        }
        slots.sort_unstable_by_key(|slot| parts(&slot.key));
        left -= slots.len();
        let fitting = slots.iter().filter(|slot| request.takes(slot.record.state));
        page.records.extend(fitting.map(|slot| Listed::new(slot.key.clone(), slot.record.clone())));
        if is_cut {
            page.next = Some(cursor(number, slots.last().map(|slot| &slot.key)));
            break;
        }
        if left == 0 {
            page.next = Some(cursor(number + 1, None)).filter(|_| number + 1 < shards.len());
            break;
        }
    }
    page
}
