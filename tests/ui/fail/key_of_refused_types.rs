use idem::{MemoryStore, idempotent};

struct Sku(u64);

#[idempotent(key = "{part}", store = store)]
async fn option(store: &MemoryStore, part: Option<u64>) -> Result<u8, idem::Error> {
    Ok(1)
}

#[idempotent(key = "{part}", store = store)]
async fn collection(store: &MemoryStore, part: Vec<u64>) -> Result<u8, idem::Error> {
    Ok(1)
}

#[idempotent(key = "{part}", store = store)]
async fn secret(store: &MemoryStore, part: secrecy::SecretString) -> Result<u8, idem::Error> {
    Ok(1)
}

#[idempotent(key = "{part}", store = store)]
async fn time(store: &MemoryStore, part: std::time::SystemTime) -> Result<u8, idem::Error> {
    Ok(1)
}

#[idempotent(key = "{part}", store = store)]
async fn own_struct(store: &MemoryStore, part: Sku) -> Result<u8, idem::Error> {
    Ok(1)
}

fn main() {}
