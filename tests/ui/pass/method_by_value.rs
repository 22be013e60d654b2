//! A method that consumes its receiver, whose parts are the key.
use idem::{Error, MemoryStore, idempotent};

struct Order {
    id: u64,
    name: String,
}

impl Order {
    #[idempotent(key = "{self.id}/{self.name.as_str()}", store = store)]
    async fn charge(self, store: MemoryStore) -> Result<String, Error> {
        Ok(self.name)
    }
}

pub(super) fn main() {
    drop(Order { id: 1, name: String::new() }.charge(MemoryStore::new()));
}
