//! Walking through a `MemoryStore`: shard by shard, and within a shard by scope and key.
//!
//! A page locks one shard at a time, so that no caller waits for the whole store.

use std::hash::BuildHasher;

use super::{MemoryStore, Slot, lock};
use idem_core::RecordKey;
use idem_core::listing::{self, Cursor, List, Listed, Page};

fn parts(key: &RecordKey) -> (&str, &str) {
    (key.scope().as_str(), key.key().as_str())
}

pub(super) fn list(store: &MemoryStore, request: &List) -> Page {
    let after = request.after.as_ref().and_then(Cursor::key);
    let after = after.and_then(|(scope, key)| listing::name(scope, key));
    let first = after.as_ref().map_or(0, |after| MemoryStore::index(store.0.hasher.hash_one(after)));
    let mut page = Page::new(store.now());
    let mut left = request.looked_at();
    for (number, shard) in store.0.shards.iter().enumerate().skip(first) {
        let shard = lock(shard);
        let behind = after.as_ref().filter(|_| number == first).map(parts);
        let mut slots: Vec<&Slot> = shard
            .slots
            .iter()
            .filter(|slot| request.scope.as_ref().is_none_or(|scope| scope == slot.key.scope()))
            .filter(|slot| behind.is_none_or(|behind| parts(&slot.key) > behind))
            .collect();
        if slots.len() > left {
            // Only the records of this page are sorted, because the shard is locked meanwhile and may be much
            // larger than a page.
            slots.select_nth_unstable_by_key(left, |slot| parts(&slot.key));
            slots.truncate(left);
        }
        slots.sort_unstable_by_key(|slot| parts(&slot.key));
        left -= slots.len();
        let fitting = slots.iter().filter(|slot| request.takes(slot.record.state));
        page.records.extend(fitting.map(|slot| Listed::new(slot.key.clone(), slot.record.clone())));
        if left == 0 {
            page.next = slots.last().map(|slot| Cursor::behind(&slot.key));
            break;
        }
    }
    page
}
