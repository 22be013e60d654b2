use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id);
}

#[idempotent(key = "{id}", store = store)]
async fn refund(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    if id == 1 {
        return "text";
    }
    Ok(id)
}

#[idempotent(key = "{id}", store = store)]
async fn cancel(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    let number: u8 = "1".parse()?;
    Ok(number + id)
}

#[idempotent(key = "{id}", store = store)]
async fn settle(store: &MemoryStore, id: u8) -> u8 {
    id
}

fn main() {}
