use idem::{MemoryStore, idempotent};

use std::fmt::Display;

#[idempotent(key = "{id}", scope = "charge", store = store)]
async fn charge<D: Display>(store: &MemoryStore, id: D) -> Result<u64, idem::Error> {
    Ok(1)
}

fn main() {}
