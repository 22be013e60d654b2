//! Under `#[async_trait]`, on either side of it.
use idem::{Error, MemoryStore, idempotent};

use async_trait::async_trait;

#[async_trait]
trait Charge {
    async fn charge(&self, id: u64) -> Result<u64, Error>;
    async fn refund(&self, id: &str) -> Result<usize, Error>;
}

struct App(MemoryStore);

#[async_trait]
impl Charge for App {
    #[idempotent(key = "{id}", store = self.0)]
    async fn charge(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[idempotent(key = "{id}", store = self.0)]
    async fn refund(&self, id: &str) -> Result<usize, Error> {
        Ok(id.len())
    }
}

pub(super) fn main() {
    let app: Box<dyn Charge> = Box::new(App(MemoryStore::new()));
    drop(app.charge(1));
    drop(app.refund("a"));
}
