use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge<const N: usize>(store: &MemoryStore, id: [u8; N]) -> Result<usize, idem::Error> {
    Ok(N)
}

fn main() {}
