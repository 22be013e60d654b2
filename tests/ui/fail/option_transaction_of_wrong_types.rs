use idem::{Error, MemoryStore, PostgresStore, idempotent};

#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn pay(store: &PostgresStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

#[idempotent(key = "{id}", store = store, transaction = tx)]
async fn bid(store: &MemoryStore, tx: &mut Vec<u8>, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
