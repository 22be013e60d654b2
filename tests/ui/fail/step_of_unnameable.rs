use idem::{Error, MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
    idem::step(7, || async { Ok::<u64, Error>(id) }).await
}

fn main() {}
