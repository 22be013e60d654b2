//! A function of a type without a receiver.
use idem::{Error, MemoryStore, idempotent};

struct App;

impl App {
    #[idempotent(key = "{id}", store = store)]
    async fn charge(store: &MemoryStore, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub(super) fn main() {
    drop(App::charge(&MemoryStore::new(), 1));
}
