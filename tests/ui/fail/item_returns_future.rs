use idem::{MemoryStore, idempotent};

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> std::pin::Pin<Box<dyn Future<Output = Result<u8, idem::Error>>>> {
    Box::pin(async move { Ok(id) })
}

fn main() {}
