use idem::{Error, MemoryStore, Recovery, idempotent};

async fn find(_: &Recovery, _: &MemoryStore, _: &u64) -> Result<u64, Error> {
    Ok(1)
}

#[idempotent(recover = find, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
