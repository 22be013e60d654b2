use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", missing_key = "refuse", store = store)]
async fn charge(store: &MemoryStore, id: Option<u8>) -> Result<bool, idem::Error> {
    Ok(id.is_some())
}

#[idempotent(key = "{id}", missing_key = true, store = store)]
async fn refund(store: &MemoryStore, id: Option<u8>) -> Result<bool, idem::Error> {
    Ok(id.is_some())
}

#[idempotent(key = "{id}", missing_key = "rejct", store = store)]
async fn cancel(store: &MemoryStore, id: Option<u8>) -> Result<bool, idem::Error> {
    Ok(id.is_some())
}

fn main() {}
