//! A method that borrows its receiver.
use idem::{Error, MemoryStore, idempotent};

struct App(MemoryStore);

impl App {
    #[idempotent(key = "{id}", store = self.0)]
    async fn charge(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub(super) fn main() {
    drop(App(MemoryStore::new()).charge(1));
}
