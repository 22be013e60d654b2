use std::sync::LazyLock;

use idem::{MemoryStore, idempotent};

static STORE: LazyLock<MemoryStore> = LazyLock::new(MemoryStore::new);

#[idempotent(key = "{id}", store = STORE)]
#[tokio::test]
async fn charges_once() -> Result<(), idem::Error> {
    Ok(())
}

#[tokio::test]
#[idempotent(key = "{id}", store = STORE)]
async fn ships_once() -> Result<(), idem::Error> {
    Ok(())
}

fn main() {}
