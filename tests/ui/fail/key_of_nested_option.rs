use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", missing_key = "run", store = store)]
async fn charge(store: &MemoryStore, id: Option<Option<u8>>) -> Result<bool, idem::Error> {
    Ok(id.is_some())
}

fn main() {}
