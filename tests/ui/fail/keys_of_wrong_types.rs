use std::fmt::Display;

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

#[idempotent(key = "{id}", scope = "charge", store = store)]
async fn charge<D: Display>(store: &MemoryStore, id: D) -> Result<u64, idem::Error> {
    Ok(1)
}

#[idempotent(key = (id, amount), missing_key = "run", store = store)]
async fn refund(store: &MemoryStore, id: Option<u8>, amount: f64) -> Result<bool, idem::Error> {
    Ok(id.is_some() && amount > 0.0)
}

fn main() {}
