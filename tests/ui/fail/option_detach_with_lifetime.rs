use idem::{MemoryStore, idempotent};

#[idempotent(detach, key = "{id}", store = store.0)]
async fn charge(store: (MemoryStore,), id: u8, _name: std::borrow::Cow<'_, str>) -> Result<u8, idem::Error> {
    Ok(id)
}

fn main() {}
