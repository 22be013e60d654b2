use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge<'a>(store: &MemoryStore, id: &'a str) -> Result<&'a str, idem::Error> {
    Ok(id)
}

fn main() {}
