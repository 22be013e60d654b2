use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}/{name}", missing_key = "reject", store = store)]
async fn charge(store: &MemoryStore, id: u8, name: &str) -> Result<usize, idem::Error> {
    Ok(name.len())
}

fn main() {}
