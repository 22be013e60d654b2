#![allow(unused)]
use idem::{Error, MemoryStore, idempotent};

fn main() {
    let (store, id) = (MemoryStore::new(), 1_u8);
    #[idempotent(key = "{id}", store = store)]
    async move {
        Ok::<u8, Error>(id)
    };
}
