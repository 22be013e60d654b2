//! A place, a tuple, a call, a block and a macro, bare.
use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = (tenant, id + 1, name.to_lowercase(), { id / 2 }, format!("{name}-{id}")), store = store)]
async fn charge(store: &MemoryStore, tenant: u8, id: u64, name: String) -> Result<String, Error> {
    Ok(name)
}

#[idempotent(key = id, store = store)]
async fn refund(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), 1, 1, String::new()));
    drop(refund(&MemoryStore::new(), 1));
}
