use std::sync::OnceLock;

use idem::{Error, MemoryStore, idempotent};

static STORE: OnceLock<MemoryStore> = OnceLock::new();

#[idempotent(key = "{id}", store = STORE)]
async fn charge(id: u8) -> Result<u8, Error> {
    Ok(id)
}

fn main() {}
