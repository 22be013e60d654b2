use idem::{Error, MemoryStore, Recovery, idempotent};

async fn seek(_: &Recovery, _: &u64) -> Result<Option<u64>, Error> {
    Ok(None)
}

#[idempotent(recover = seek, key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

async fn find(_: &Recovery, _: &MemoryStore, _: &u64) -> Result<u64, Error> {
    Ok(1)
}

#[idempotent(recover = find, key = "{id}", store = store)]
async fn refund(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    Ok(id)
}

fn main() {}
