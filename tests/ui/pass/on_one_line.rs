//! A function on one line, and an empty value.
use idem::{Error, MemoryStore, idempotent};

#[rustfmt::skip]
#[deny(unused_braces)]
#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> { Ok(id) }

#[idempotent(key = "{id}", store = store)]
async fn refund(store: &MemoryStore, id: u64) -> Result<(), Error> {
    Ok(())
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(charge(&store, 1));
    drop(refund(&store, 1));
}
