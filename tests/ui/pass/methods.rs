//! Methods whose receiver is pinned or consumed.
use idem::{Error, MemoryStore, idempotent};

use std::pin::Pin;

struct App(MemoryStore, String);

impl App {
    #[idempotent(key = "{id}", store = self.0)]
    async fn pinned(self: Pin<&mut Self>, id: u64) -> Result<u64, Error> {
        Ok(id)
    }

    #[idempotent(key = "{self.1.as_str()}", store = store)]
    async fn consumed(self, store: MemoryStore) -> Result<String, Error> {
        Ok(self.1)
    }
}
