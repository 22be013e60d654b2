use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let number: u8 = "1".parse()?;
    Ok(number + id)
}

fn main() {}
