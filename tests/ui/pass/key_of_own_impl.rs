//! A type with a `KeyPart` of its own.
use idem::{Error, MemoryStore, idempotent};

use idem::{KeyBuilder, KeyPart};

struct Email(String);

impl KeyPart for Email {
    fn render(&self, key: &mut KeyBuilder) {
        key.value(&self.0.to_lowercase());
    }
}

#[idempotent(key = "{to}", store = store)]
async fn send(store: &MemoryStore, to: &Email) -> Result<usize, Error> {
    Ok(to.0.len())
}

pub(super) fn main() {
    drop(send(&MemoryStore::new(), &Email(String::new())));
}
