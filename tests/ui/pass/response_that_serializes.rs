//! A type with the name of a response that can be recorded.
use idem::{Error, MemoryStore, idempotent};

#[derive(serde::Serialize, serde::Deserialize)]
struct Json<T>(T);

#[idempotent(key = "{id}", store = store)]
async fn charge(store: &MemoryStore, id: u8) -> Result<Json<u8>, Error> {
    Ok(Json(id))
}

pub(super) fn main() {
    drop(charge(&MemoryStore::new(), 1));
}
