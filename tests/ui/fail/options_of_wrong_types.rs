use idem::{MemoryStore, idempotent};

#[idempotent(ttl = std::mem::size_of::<u8>(), key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

#[idempotent(fingerprint = store, key = "{id}", store = store)]
async fn refund(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

#[idempotent(terminal = |_| true, key = "{id}", store = store)]
async fn cancel(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

#[idempotent(key = "{id}/{name}", missing_key = "reject", store = store)]
async fn settle(store: &MemoryStore, id: u8, name: &str) -> Result<usize, idem::Error> {
    Ok(name.len())
}

#[idempotent(detach, key = "{id}", store = MemoryStore::new())]
async fn redeem(id: std::rc::Rc<str>) -> Result<usize, idem::Error> {
    Ok(id.len())
}

fn main() {}
