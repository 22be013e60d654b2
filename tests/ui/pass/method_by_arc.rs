//! A receiver behind a pointer.
use idem::{Error, MemoryStore, idempotent};

use std::pin::Pin;
use std::sync::Arc;

struct App(MemoryStore);

impl App {
    #[idempotent(key = "{id}", store = self.0)]
    async fn shared(self: Arc<Self>, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[idempotent(key = "{id}", store = self.0)]
    async fn pinned(self: Pin<&mut Self>, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

pub(super) fn main() {
    let mut app = App(MemoryStore::new());
    drop(Pin::new(&mut app).pinned(1));
    drop(Arc::new(app).shared(1));
}
