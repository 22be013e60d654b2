#![allow(unused)]
use idem::{Error, MemoryStore, idempotent};

fn main() {
    let store = MemoryStore::new();
    let charge = #[idempotent(key = "{id}", store = store)]
    async |id: u8| Ok::<u8, Error>(id);
    drop(charge(1));
}
