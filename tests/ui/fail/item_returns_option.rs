use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Option<u8> {
    Some(id)
}

fn main() {}
