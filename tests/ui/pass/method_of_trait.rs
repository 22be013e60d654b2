//! Methods in a trait impl, and a default method.
use idem::{Error, MemoryStore, idempotent};

trait Charge: Sized {
    fn store(&self) -> &MemoryStore;

    #[idempotent(key = "{id}", store = self.store())]
    async fn charge(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    async fn refund(&self, id: u64) -> Result<u64, Error>;
}

struct App(MemoryStore);

impl Charge for App {
    fn store(&self) -> &MemoryStore {
        &self.0
    }

    #[idempotent(key = "{id}", store = self.0)]
    async fn refund(&self, id: u64) -> Result<u64, Error> {
        self.charge(id).await
    }
}

pub(super) fn main() {
    let app = App(MemoryStore::new());
    drop(app.charge(1));
    drop(app.refund(1));
}
