#![deny(unused_variables)]

use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let unused = 1;
    Ok(id)
}

fn main() {}
