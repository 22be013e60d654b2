//! A store itself, and behind references, `Arc`, `Rc` and `Box`.
use idem::{Error, MemoryStore, idempotent};

use std::rc::Rc;
use std::sync::Arc;

#[idempotent(key = "{id}", store = store)]
async fn owned(store: MemoryStore, id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn deep(store: &Arc<Box<MemoryStore>>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[idempotent(key = "{id}", store = *store)]
async fn dereferenced(store: Rc<MemoryStore>, id: u8) -> Result<u8, Error> {
    Ok(id)
}

pub(super) fn main() {
    let store = MemoryStore::new();
    drop(owned(store.clone(), 1));
    drop(deep(&Arc::new(Box::new(store.clone())), 1));
    drop(dereferenced(Rc::new(store), 1));
}
