#![deny(unused_must_use)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    std::fs::remove_file("x");
    Ok(id)
}

fn main() {}
