use idem::{MemoryStore, idempotent};

trait Charge {
    #[idempotent(key = "{id}", store = store)]
    async fn charge(store: &MemoryStore, id: u8) -> Result<u8, idem::Error>;
}

fn main() {}
