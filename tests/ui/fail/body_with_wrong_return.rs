use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    if id == 1 {
        return "text";
    }
    Ok(id)
}

fn main() {}
