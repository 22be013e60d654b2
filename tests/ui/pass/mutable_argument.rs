//! An argument that the body changes or consumes.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}/{lines.len()}", store = store)]
async fn charge(store: MemoryStore, mut id: u64, mut lines: Vec<u8>, log: &mut Vec<u64>) -> Result<u64, Error> {
    id += 1;
    lines.push(1);
    log.push(id);
    drop(lines);
    Ok(id)
}

pub(super) fn main() {
    drop(charge(MemoryStore::new(), 1, vec![], &mut vec![]));
}
