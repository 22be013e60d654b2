//! A method that changes its receiver.
use idem::{Error, MemoryStore, idempotent};

struct App {
    store: MemoryStore,
    count: u64,
}

impl App {
    #[idempotent(key = "{id}", store = self.store)]
    async fn charge(&mut self, id: u64) -> Result<u64, Error> {
        self.count += id;
        Ok(self.count)
    }
}

pub(super) fn main() {
    let mut app = App { store: MemoryStore::new(), count: 0 };
    drop(app.charge(1));
}
