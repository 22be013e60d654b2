#![deny(unreachable_code)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    return Ok(id);
    drop(id);
    Ok(id)
}

fn main() {}
