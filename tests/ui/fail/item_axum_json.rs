use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<axum::Json<u8>, idem::Error> {
    Ok(axum::Json(id))
}

fn main() {}
