use idem::{MemoryStore, idempotent};

#[idempotent(key = (id, amount), missing_key = "run", store = store)]
async fn charge(store: &MemoryStore, id: Option<u8>, amount: f64) -> Result<bool, idem::Error> {
    Ok(id.is_some() && amount > 0.0)
}

fn main() {}
