use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge<const N: usize, T: Clone>(store: &MemoryStore, id: u8, bytes: [T; N]) -> Result<usize, Error> {
    Ok(bytes.len())
}

fn main() {}
