use idem::{MemoryStore, idempotent};

#[idempotent(key = "{di}", tll = "1h", ttl = "1M", lease = 5, max_attempts = 0, on_crash = "retry")]
async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
