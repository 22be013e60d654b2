use idem::{Error, MemoryStore, idempotent};

struct Receipt;

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    idem::step("charge", || async { Ok::<_, Error>(Receipt) }).await?;
    Ok(id)
}

fn main() {}
