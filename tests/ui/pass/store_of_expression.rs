//! A static, a function, a method chain and a block as the store.
use idem::{Error, MemoryStore, idempotent};

use std::sync::OnceLock;

static STORE: OnceLock<MemoryStore> = OnceLock::new();

fn store() -> &'static MemoryStore {
    STORE.get_or_init(MemoryStore::new)
}

#[idempotent(key = "{id}", store = STORE.get_or_init(MemoryStore::new))]
async fn of_static(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store())]
async fn of_function(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = { store().clone() })]
async fn of_block(id: u8) -> Result<u8, Error> {
    Ok(id)
}

pub(super) fn main() {
    drop(of_static(1));
    drop(of_function(1));
    drop(of_block(1));
}
