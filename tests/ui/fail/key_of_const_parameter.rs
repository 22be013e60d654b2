use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{N}", scope = "charge", store = store)]
async fn charge<const N: usize>(store: &MemoryStore) -> Result<usize, Error> {
    Ok(N)
}

fn main() {}
