//! A function of a type without a receiver, with a scope.
use idem::{Error, MemoryStore, idempotent};

struct App;

impl App {
    #[idempotent(key = "{id}", scope = "app.charge", store = store)]
    async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub(super) fn main() {
    drop(App::charge(&MemoryStore::new(), 1));
}
