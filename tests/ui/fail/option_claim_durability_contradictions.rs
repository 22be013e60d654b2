//! What depends on a record of each start cannot go with claims that a crash may lose.
use idem::{Error, MemoryStore, Recovery, idempotent};

async fn look(_: &Recovery, _: &&MemoryStore, _: &u64) -> Result<Option<u8>, Error> {
    Ok(None)
}

#[idempotent(
    key = "{id}",
    store = store,
    claim_durability = "relaxed",
    on_crash = "in_doubt",
    max_attempts = 3,
    recover = look,
)]
async fn pay(store: &MemoryStore, id: u64) -> Result<u8, Error> {
    Ok(1)
}

fn main() {}
